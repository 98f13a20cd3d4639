//! `cenote gc`

use std::path::PathBuf;

use cenote::remove_dead;
use serde::Serialize;

use crate::failure::Outcome;
use crate::ls;
use crate::output::{Output, Page, Report};

/// Removes sockets that dead processes left behind
///
/// Nobody needs it: whoever comes across such a socket removes it. What belongs to the living stays.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        ls::check_namespace()?;
        output.report(&Removed { removed: remove_dead()? })
    }
}

#[derive(Debug, Serialize)]
struct Removed {
    removed: Vec<PathBuf>,
}

impl Report for Removed {
    fn write(&self, page: &mut Page) {
        match self.removed.is_empty() {
            true => page.aside("nothing to remove"),
            false => self.removed.iter().for_each(|path| page.line(path.display())),
        }
    }
}
