//! Pools: one owner, any number of attached processes, and nothing to repair when one is killed.
//!
//! Children are this same program, started with a role; they are reaped by id.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
#[path = "pool/linux.rs"]
mod linux;
