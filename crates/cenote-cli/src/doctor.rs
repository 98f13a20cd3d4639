//! `cenote doctor`

mod device;
mod meeting;
mod memory;
mod system;

use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::{Output, Page, Report};

/// What works on this machine, what does not, and what to do about it
///
/// The exit code is 1 if something does not work that everything else needs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let checks: Vec<Check> =
            [system::checks(), memory::checks(), meeting::checks(), device::checks()]
                .into_iter()
                .flatten()
                .collect();
        let healthy = checks.iter().all(|check| check.state != State::Broken);
        output.report(&Findings { healthy, checks })?;
        if healthy { Ok(()) } else { Err(Failure::Told) }
    }
}

#[derive(Debug, Serialize)]
struct Findings {
    healthy: bool,
    checks: Vec<Check>,
}

/// What was found of one thing.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    /// What to do, unless it works.
    advice: Option<&'static str>,
}

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Works,
    /// Less than there could be; all else works.
    Limited,
    /// Not there; some things will not work.
    Missing,
    /// Nothing works without.
    Broken,
}

impl Check {
    fn new(name: &'static str, state: State, found: impl Into<String>) -> Check {
        Check { name, state, found: found.into(), advice: None }
    }

    fn works(name: &'static str, found: impl Into<String>) -> Check {
        Check::new(name, State::Works, found)
    }

    fn advise(self, advice: &'static str) -> Check {
        let advice = (self.state != State::Works).then_some(advice);
        Check { advice, ..self }
    }
}

/// A number from a file such as those of /proc.
fn number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

impl Report for Findings {
    fn write(&self, page: &mut Page) {
        for Check { name, state, found, advice } in &self.checks {
            let line = |word: &str| format!("{word:<8} {name}: {found}");
            match state {
                State::Works => page.good(&line("works")),
                State::Limited => page.warning(&line("limited")),
                State::Missing => page.warning(&line("missing")),
                State::Broken => page.bad(&line("BROKEN")),
            }
            if let Some(advice) = advice {
                page.aside(&format!("         {advice}"));
            }
        }
    }
}
