//! `cenote completions`

use clap_complete::Shell;

use crate::failure::Outcome;
use crate::output::Output;

/// Print a completion script for a shell
///
/// Example: cenote completions bash > /etc/bash_completion.d/cenote
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    /// `cli` is the whole command line.
    pub(crate) fn run(&self, mut cli: clap::Command, output: &Output) -> Outcome {
        output.refuse_json("a completion script")?;
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut cli, "cenote", &mut text);
        output.raw(&text)
    }
}
