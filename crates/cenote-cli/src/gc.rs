//! `cenote gc`

use cenote::remove_dead;
use serde::Serialize;

use crate::failure::Outcome;
use crate::ls;
use crate::namespace;
use crate::output::{Output, Page, Report};

/// Removes what dead processes left behind: their sockets, and the namespaces of demos and benchmarks
///
/// Nobody needs it: whoever comes across such a socket removes it. What belongs to the living stays.
/// Sockets are those of this namespace; demos and benchmarks have namespaces of their own.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        ls::check_namespace()?;
        let mut removed = remove_dead()?;
        removed.extend(namespace::remove_leftovers()?);
        let removed = removed.iter().map(|path| path.display().to_string()).collect();
        output.report(&Removed { removed })
    }
}

#[derive(Debug, Serialize)]
struct Removed {
    removed: Vec<String>,
}

impl Report for Removed {
    fn write(&self, page: &mut Page) {
        match self.removed.is_empty() {
            true => page.aside("nothing to remove"),
            false => self.removed.iter().for_each(|path| page.line(path)),
        }
    }
}
