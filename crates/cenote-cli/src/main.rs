//! `cenote`: what is shared between the processes of this machine, and how it is doing.
//!
//! ```text
//!   main.rs       the commands, and what becomes of a failure
//!   failure.rs    what went wrong, in one line and a code
//!   output.rs     text for people or JSON for programs, in one place
//!   meter.rs      rate, bandwidth and latency of a topic, seen from outside
//!   <command>.rs  one command each; topic/ and pool/ have those of `cenote topic` and `cenote pool`
//! ```
//!
//! Commands that look take no part: see `cenote::Observer`.

mod bench;
mod children;
mod clock;
mod completions;
mod demo;
mod doctor;
mod failure;
mod files;
mod gc;
mod interrupt;
mod ls;
mod man;
mod meter;
mod namespace;
mod output;
mod pattern;
mod pause;
mod percentile;
mod pool;
mod screen;
mod top;
mod topic;
mod unit;
mod why;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Outcome;
use crate::output::Output;

/// Memory for tensors: looks at pools and topics of this machine, and tries them out.
///
/// What is there is found in $CENOTE_DIR/$CENOTE_NAMESPACE (by default /dev/shm/cenote-<uid>/default).
/// Looking takes no part: no publisher waits for this program, or sends it anything.
#[derive(Debug, Parser)]
#[command(name = "cenote", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 not understood, 3 no such topic, pool, \
namespace or file, 4 nothing came in time, 5 no permission, 128 + N interrupted by signal N.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,

    /// JSON instead of text; what goes on is one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Ls(ls::Args),
    Top(top::Args),
    /// Topics: who sends what, how often, and what is in it
    #[command(subcommand)]
    Topic(topic::Command),
    /// Pools: how full they are, and who holds what
    #[command(subcommand)]
    Pool(pool::Command),
    Why(why::Args),
    Doctor(doctor::Args),
    Gc(gc::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    fn run(self, output: &Output) -> Outcome {
        match self {
            Command::Demo(args) => args.run(output),
            Command::Ls(args) => args.run(output),
            Command::Top(args) => args.run(output),
            Command::Topic(command) => command.run(output),
            Command::Pool(command) => command.run(output),
            Command::Why(args) => args.run(output),
            Command::Doctor(args) => args.run(output),
            Command::Gc(args) => args.run(output),
            Command::Bench(args) => args.run(output),
            Command::Completions(args) => args.run(output),
            Command::Man(args) => args.run(output),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command.run(&Output::new(cli.json)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use clap::{Command, CommandFactory, Parser};

    use super::Cli;

    /// The names of a command's subcommands, and of theirs.
    fn paths(command: &Command, path: &[String]) -> Vec<Vec<String>> {
        let path = [path, &[command.get_name().to_owned()]].concat();
        let below = command.get_subcommands().flat_map(|below| paths(below, &path));
        std::iter::once(path.clone()).chain(below).collect()
    }

    #[test]
    fn the_commands_of_the_guide_are_understood() {
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
    fn every_command_explains_itself() {
        Cli::command().debug_assert();
        let paths = paths(&Cli::command(), &[]);
        assert!(paths.len() > 20, "{paths:?}");
        for path in paths {
            let asked = path.iter().map(String::as_str).chain(["--help"]);
            let help = Cli::try_parse_from(asked).unwrap_err();
            assert_eq!(help.kind(), ErrorKind::DisplayHelp, "{path:?}");
            assert!(help.to_string().contains("--json"), "{path:?}");
        }
    }
}
