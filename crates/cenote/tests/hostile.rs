//! Peers that mean harm: they speak the protocol as raw bytes, lie in every word of it, and must
//! not hurt anybody but themselves: no panic, no signal, nothing leaked, nobody else delayed.
//!
//! Tests run one after another, for each counts the descriptors and mappings of this process.
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
#[path = "hostile/linux.rs"]
mod linux;
