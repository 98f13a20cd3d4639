//! `cenote doctor`

mod attach;
mod check;
mod device;
mod memory;
mod system;

use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::{Output, Page, Report};

use check::{Check, CheckState};

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
