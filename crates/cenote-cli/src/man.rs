//! `cenote man`

use std::path::PathBuf;

use clap::CommandFactory;

use crate::Cli;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// The manual page, or all of them into a directory
///
/// As in: cenote man | man -l -
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write a page for each command into this directory
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        output.refuse_json("a manual page")?;
        let Some(dir) = &self.out else {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut text)?;
            return output.raw(&text);
        };
        let failed = |error| Failure::of_file("writing to", dir, &error);
        std::fs::create_dir_all(dir).map_err(failed)?;
        clap_mangen::generate_to(Cli::command(), dir).map_err(failed)
    }
}
