//! The command `cenote`.

use crate::command::{CommandLine, cargo};
use crate::failure::Failure;
use crate::stage::{Stage, StageContext, report_tests};

pub(super) const STAGE: Stage = Stage {
    name: "cli",
    about: "the command: its tests, on a terminal too, and the demo as a user runs it",
    require: |needs| needs.need("tmux", "tmux"),
    run,
    build_ahead: Some(|_| tests().arg("--no-run").run()),
};

fn run(_: &StageContext) -> Result<(), Failure> {
    // Both run, even if the first fails.
    let tests = tests().run();
    let demo = CommandLine::new("scripts/demo").args(["--seconds", "4"]).run();
    report_tests(usize::from(demo.is_ok()), usize::from(demo.is_err()));
    tests.and(demo)
}

/// In release mode, as it is shipped, so that the demo needs no second build.
fn tests() -> CommandLine {
    cargo("test --no-fail-fast --release --package cenote-cli")
}
