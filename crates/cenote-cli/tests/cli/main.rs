//! Tests of the command `cenote`. Every test runs the real binary in a temporary socket directory.
//!
//! Other processes are the binary itself (`cenote topic pub`), or this program in a role (`child.rs`). Tests end
//! them by process id. A test waits for a condition, up to one minute; it does not sleep for a fixed time.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

/// A list of tests: the name of each function, and the function.
macro_rules! tests {
    ($($test:ident),* $(,)?) => { &[$((stringify!($test), $test)),*] };
}

mod child;
mod demo;
mod error;
mod list;
mod maintenance;
mod measure;
mod message;
mod permission;
mod pool;
mod sandbox;
mod terminal;
mod wait;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// The name of a test, and the test.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    if child::run_role() {
        return ExitCode::SUCCESS;
    }
    let tests = [
        list::TESTS,
        measure::TESTS,
        pool::TESTS,
        maintenance::TESTS,
        permission::TESTS,
        wait::TESTS,
        message::TESTS,
        error::TESTS,
        demo::TESTS,
        terminal::TESTS,
    ];
    let trial = |&(name, test): &Test| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let trials = tests.iter().flat_map(|tests| tests.iter()).map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
