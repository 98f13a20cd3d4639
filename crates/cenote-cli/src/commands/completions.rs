//! `cenote completions`

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
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
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        output.refuse_json("a completion script")?;
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "cenote", &mut text);
        output.raw(&text)
    }
}
