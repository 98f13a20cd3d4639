//! A process is killed at every instruction of an operation; the processes that live on must stay correct.
//!
//! For each operation a real process is stepped through it once, and its instructions are recorded. Then,
//! for each of them, a fresh process runs at full speed to a breakpoint there and is killed, and the
//! survivors check their state. (Stepping to each point again would take quadratic time.)
//!
//! ```text
//!   tracer.rs        ptrace(2): steps threads, stops them at a breakpoint, and kills them
//!   fork_server.rs   forks every victim from one process that never changes, so that all are equal
//!   pool_operations.rs, topic_operations.rs          what the victims do
//!   scenario.rs, publisher_scenarios.rs, subscriber_scenarios.rs
//!                    the survivors of an operation, and what must hold for them after a kill
//!   sweep.rs         records the trace, chooses the points, and kills
//! ```
//!
//! `CENOTE_KILL_FULL=1` takes every instruction of the long operations, too. Build it in release mode, so
//! that it tests the code that ships.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "../support/mod.rs"]
mod support;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::process::ExitCode;

#[cfg(target_arch = "x86_64")]
fn main() -> ExitCode {
    if support::emulated() {
        return unavailable(|_| Some("an emulator has no ptrace"));
    }
    x86_64::main()
}

#[cfg(not(target_arch = "x86_64"))]
fn main() -> ExitCode {
    unavailable(|_| Some("breakpoints are set on x86_64 only"))
}

/// Prints the reason, and counts as ignored instead of passed.
fn unavailable(why: fn(&str) -> Option<&'static str>) -> ExitCode {
    support::program::TestProgram::new("kill")
        .unavailable(why)
        .run(&[&[("killed_at_every_instruction", || ())]])
}
