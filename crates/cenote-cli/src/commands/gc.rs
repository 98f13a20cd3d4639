//! `cenote gc`

use cenote::remove_dead;
use serde::Serialize;

use crate::commands::socket_dir;
use crate::failure::Outcome;
use crate::output::{Output, Page, Report};
use crate::process::temporary_namespace;

/// Remove the sockets of dead processes, and the namespaces of dead demos and benchmarks
///
/// You rarely need this: a process that finds such a socket removes it. Sockets are removed in this namespace
/// only. Nothing of a living process is removed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        socket_dir::check_namespace()?;
        let mut removed = remove_dead()?;
        removed.extend(temporary_namespace::remove_leftovers()?);
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
