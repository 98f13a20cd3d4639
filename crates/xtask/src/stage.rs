//! A stage: a part of the tests that runs and fails by itself.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use crate::checkout::Checkout;
use crate::failure::Failure;
use crate::requirements::Requirements;

/// What a stage does: it runs, or it builds ahead.
pub(crate) type StageStep = fn(&StageContext) -> Result<(), Failure>;

pub(crate) struct Stage {
    /// As in `scripts/test NAME`.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Notes what is missing on this machine. Called before the first stage starts.
    pub(crate) require: fn(&mut Requirements),
    pub(crate) run: StageStep,
    /// Builds what `run` builds, at the lowest priority, while earlier stages run. The stage must
    /// not depend on it.
    pub(crate) build_ahead: Option<StageStep>,
}

pub(crate) fn require_nothing(_: &mut Requirements) {}

/// What a stage is given.
pub(crate) struct StageContext {
    pub(crate) checkout: Checkout,
    /// Notes are kept here, for the report of the run. `None` while building ahead.
    pub(crate) notes: Option<PathBuf>,
}

impl StageContext {
    /// Prints a line that people must see, even if the stage succeeds.
    pub(crate) fn note(&self, line: &str) {
        println!("{line}");
        let Some(path) = &self.notes else { return };
        let file = OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
            println!("error: {}: {error}", path.display());
        }
    }
}

/// Reports tests that a stage ran without `cargo test`, in the words of `cargo test`.
pub(crate) fn report_tests(passed: usize, failed: usize) {
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
}
