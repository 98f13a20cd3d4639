//! In a memory-limited cgroup, running out of memory is an error value and not a kill.
//!
//! Each test makes a cgroup of 64 MiB and starts this program again as a child that moves itself
//! into it and allocates until it is refused. Making cgroups takes root.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
#[path = "cgroup/linux.rs"]
mod linux;
