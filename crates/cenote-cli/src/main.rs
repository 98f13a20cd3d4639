//! The command `cenote`: inspects the pools and topics of this machine, and tries them out.
//!
//! ```text
//!   main.rs        the arguments that all commands share
//!   commands/      one file for each command; topic/ and pool/ contain those of `cenote topic` and `cenote pool`
//!   files/         tensors as PNG, PLY and NPY files
//!   measure/       rate, bandwidth and latency of a topic; percentiles; clocks
//!   output/        text, tables and JSON on standard output, and the live view of a terminal
//!   process/       child processes, their namespaces, and the signals that end or stop this program
//!   test_pattern   an image whose every byte follows from the frame number
//!   argument       numbers on the command line
//!   failure        why a command failed: one line for people, an exit code for programs
//!   sanitize       removes terminal control characters from the text of other processes
//! ```
//!
//! A file imports from the lines below its own only.
//!
//! Commands that inspect a topic use [`cenote::Observer`], which no publisher waits for.

mod argument;
mod commands;
mod failure;
mod files;
mod measure;
mod output;
mod process;
mod sanitize;
mod test_pattern;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::commands::Command;
use crate::output::Output;

/// Inspects the cenote pools and topics of this machine, and tries them out.
///
/// Processes find each other in $CENOTE_DIR/$CENOTE_NAMESPACE (by default /dev/shm/cenote-<uid>/default).
/// Commands that only inspect are not subscribers: no publisher waits for them or sends them anything.
#[derive(Debug, Parser)]
#[command(name = "cenote", version, arg_required_else_help = true)]
#[command(after_help = "Examples:
  cenote demo                      a camera and three subscribers, live
  cenote ls                        all topics and pools
  cenote topic hz camera.rgb       rate and latency of a topic
  cenote why camera.rgb            whether the topic copies frames, and why

Exit codes:
  0        success
  1        failure
  2        invalid argument, name, file extension or environment variable
  3        no such topic, pool, namespace or file
  4        nothing arrived in time
  5        permission denied
  128 + N  interrupted by signal N")]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Print JSON instead of text; commands that keep running print one object per line
    #[arg(long, global = true)]
    json: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command.run(Cli::command, &Output::new(cli.json)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use clap::{Command, CommandFactory, Parser};

    use super::Cli;

    /// The paths of a command, its subcommands, and theirs.
    fn paths(command: &Command, path: &[String]) -> Vec<Vec<String>> {
        let path = [path, &[command.get_name().to_owned()]].concat();
        let below = command.get_subcommands().flat_map(|below| paths(below, &path));
        std::iter::once(path.clone()).chain(below).collect()
    }

    #[test]
    fn every_command_in_the_guide_parses() {
        let guide = include_str!("../../../guide/command.md");
        let commands = guide.lines().filter(|line| line.starts_with("cenote "));
        let commands: Vec<&str> =
            commands.map(|line| line.split('#').next().unwrap_or(line)).collect();
        assert!(commands.len() > 15);
        for command in commands {
            assert!(Cli::try_parse_from(command.split_whitespace()).is_ok(), "{command}");
        }
    }

    #[test]
    fn every_command_has_a_help_text() {
        Cli::command().debug_assert();
        let paths = paths(&Cli::command(), &[]);
        assert!(paths.len() > 20, "{paths:?}");
        for path in paths {
            let args = path.iter().map(String::as_str).chain(["--help"]);
            let help = Cli::try_parse_from(args).unwrap_err();
            assert_eq!(help.kind(), ErrorKind::DisplayHelp, "{path:?}");
            assert!(help.to_string().contains("--json"), "{path:?}");
        }
    }
}
