//! Killed at every instruction: whoever dies, and wherever, the survivors are correct.
//!
//! For each operation a real process is stepped through it once, and its instructions are written
//! down. Then, for each of them, a fresh process runs at full speed to a breakpoint there and is
//! killed, and those that live on are asked whether all is well. (Stepping to each point anew would
//! take time that grows with the square.)
//!
//! ```text
//!   tracer.rs   ptrace(2): threads that are stepped, stopped at a breakpoint, and killed
//!   nursery.rs  processes that are forked off one that never changes, so that all are alike
//!   victim.rs, speaker.rs                  what they do, with pools and with topics
//!   scene.rs, publishing.rs, subscribing.rs   who else is there, and what must hold for them after
//!   sweep.rs    the trace, the choice of points, and the killing
//! ```
//!
//! `CENOTE_KILL_FULL=1` takes every instruction of the long operations, too. To be built in release
//! mode: what ships is what is tested.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[allow(dead_code, reason = "other tests use the rest")]
mod stranger;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "kill/linux.rs"]
mod linux;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    if std::env::var_os("CENOTE_TEST_EMULATED").is_some() {
        return unavailable("an emulator has no ptrace");
    }
    linux::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() -> std::process::ExitCode {
    unavailable("breakpoints are set on x86_64 Linux only")
}

/// Says so, and counts as ignored rather than as passed.
fn unavailable(why: &str) -> std::process::ExitCode {
    println!("NOT AVAILABLE: killed at every instruction: {why}");
    let trial = libtest_mimic::Trial::test("killed_at_every_instruction", || Ok(()));
    let args = libtest_mimic::Arguments::from_args();
    libtest_mimic::run(&args, vec![trial.with_ignored_flag(true)]).exit_code()
}
