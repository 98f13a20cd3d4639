//! The command, as people and programs use it: every test runs the real binary, in a directory of its own.
//!
//! Other processes are the binary itself (`cenote topic pub`), or this program, started with a role; they
//! are reaped by id.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "cli/bad_input.rs"]
mod bad_input;
#[path = "cli/closed.rs"]
mod closed;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/file.rs"]
mod file;
#[path = "cli/looking.rs"]
mod looking;
#[path = "cli/patience.rs"]
mod patience;
#[path = "cli/role.rs"]
mod role;
#[path = "cli/scene.rs"]
mod scene;
#[path = "cli/terminal.rs"]
mod terminal;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

type Test = (&'static str, fn());

fn main() -> ExitCode {
    if role::play() {
        return ExitCode::SUCCESS;
    }
    let tests = [
        looking::TESTS,
        closed::TESTS,
        patience::TESTS,
        file::TESTS,
        bad_input::TESTS,
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
