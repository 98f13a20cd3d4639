//! `cenote doctor`

mod attach;
mod device;
mod memory;
mod system;

use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::{Output, Page, Report};

/// Check what works on this machine, and advise on what does not
///
/// The exit code is 1 if something is broken that cenote cannot work without.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let checks: Vec<Check> =
            [system::checks(), memory::checks(), attach::checks(), device::checks()]
                .into_iter()
                .flatten()
                .collect();
        let healthy = checks.iter().all(|check| check.state != CheckState::Broken);
        output.report(&Findings { healthy, checks })?;
        if healthy { Ok(()) } else { Err(Failure::Reported) }
    }
}

#[derive(Debug, Serialize)]
struct Findings {
    healthy: bool,
    checks: Vec<Check>,
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: CheckState,
    found: String,
    /// What to do about it; `None` if it works.
    advice: Option<&'static str>,
}

/// How well something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    /// It works.
    Works,
    /// It works with restrictions.
    Limited,
    /// It is not available; features that need it do not work.
    Missing,
    /// It does not work, and nothing works without it.
    Broken,
}

impl Check {
    fn new(name: &'static str, state: CheckState, found: impl Into<String>) -> Check {
        Check { name, state, found: found.into(), advice: None }
    }

    fn works(name: &'static str, found: impl Into<String>) -> Check {
        Check::new(name, CheckState::Works, found)
    }

    fn advise(self, advice: &'static str) -> Check {
        let advice = (self.state != CheckState::Works).then_some(advice);
        Check { advice, ..self }
    }
}

/// Reads a number from a file of /proc.
fn number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

impl Report for Findings {
    fn write(&self, page: &mut Page) {
        for Check { name, state, found, advice } in &self.checks {
            let line = |word: &str| format!("{word:<8} {name}: {found}");
            match state {
                CheckState::Works => page.good(&line("works")),
                CheckState::Limited => page.warning(&line("limited")),
                CheckState::Missing => page.warning(&line("missing")),
                CheckState::Broken => page.bad(&line("BROKEN")),
            }
            if let Some(advice) = advice {
                page.aside(&format!("         {advice}"));
            }
        }
    }
}
