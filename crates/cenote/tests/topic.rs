//! Topics: any number of publishers and subscribers, in any order of start and death, and every
//! message either received whole or counted as missed.
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
#[allow(dead_code, reason = "other tests use the rest")]
mod stranger;

#[cfg(target_os = "linux")]
#[path = "topic/linux.rs"]
mod linux;
