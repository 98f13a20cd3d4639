//! Depth images: metres whatever is stored, points in space, and what another process sees of them.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    domain::run("depth", &[linux::TESTS])
}

#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "other tests use the rest")]
mod domain;
#[cfg(target_os = "linux")]
#[path = "depth/linux.rs"]
mod linux;
#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "other tests use the rest")]
mod stranger;
