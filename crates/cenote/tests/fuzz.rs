//! Random mutations of everything that comes from strangers: descriptors, messages with tensors, and
//! both sides of attaching and of subscribing. Nothing may panic, fault, or leak.
//!
//! Ten seconds by default; `CENOTE_FUZZ_SECONDS` makes it longer, `CENOTE_FUZZ_SEED` different. A seed
//! gives the same inputs in every run.
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
#[path = "fuzz/mutate.rs"]
mod mutate;

#[cfg(target_os = "linux")]
#[path = "fuzz/topic.rs"]
mod topic;

#[cfg(target_os = "linux")]
#[path = "fuzz/linux.rs"]
mod linux;
