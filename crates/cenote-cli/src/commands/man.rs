//! `cenote man`

use std::path::PathBuf;

use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Print the manual page, or write one page for each command to a directory
///
/// Example: cenote man | man -l -
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write one page for each command to this directory
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Args {
    /// `cli` is the whole command line.
    pub(crate) fn run(&self, cli: clap::Command, output: &Output) -> Outcome {
        output.refuse_json("a manual page")?;
        let Some(dir) = &self.out else {
            let mut text = Vec::new();
            clap_mangen::Man::new(cli).render(&mut text)?;
            return output.raw(&text);
        };
        let failed = |error| Failure::of_file("writing to", dir, &error);
        std::fs::create_dir_all(dir).map_err(failed)?;
        clap_mangen::generate_to(cli, dir).map_err(failed)
    }
}
