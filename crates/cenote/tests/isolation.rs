//! Other users, other namespaces, little memory, stopped processes: what keeps processes apart, and
//! what must not.
//!
//! Changing users, namespaces and cgroups takes root. Where that cannot be had the tests fail, unless
//! `CENOTE_TEST_SKIP=isolation` says that they are not wanted.
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
#[path = "isolation/linux.rs"]
mod linux;
