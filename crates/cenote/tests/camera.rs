//! Cameras, on a kernel that has virtual ones: `scripts/test vm` runs this in a virtual machine with two
//! of vivid's, `/dev/video0` with the single-planar interface and `/dev/video1` with the multi-planar one.
//!
//! Tests run one after another: a camera is for one at a time. Children are this same program, started
//! with a role; they are reaped by id.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "other tests use the rest")]
mod stranger;

#[cfg(target_os = "linux")]
#[path = "camera/linux.rs"]
mod linux;
