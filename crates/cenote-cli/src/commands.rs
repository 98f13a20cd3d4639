//! The commands, one file each.

mod bench;
mod completions;
mod demo;
mod doctor;
mod gc;
mod ls;
mod man;
mod pool;
mod socket_dir;
mod top;
mod topic;
mod why;

use clap::Subcommand;

use crate::failure::Outcome;
use crate::output::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Ls(ls::Args),
    Top(top::Args),
    /// Topics: publishers, subscribers, rates and messages
    #[command(subcommand)]
    Topic(topic::Command),
    /// Pools: how full they are, and which processes hold their memory
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
    /// Runs the command. `cli` returns the whole command line, which two commands describe.
    pub(crate) fn run(self, cli: fn() -> clap::Command, output: &Output) -> Outcome {
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
            Command::Completions(args) => args.run(cli(), output),
            Command::Man(args) => args.run(cli(), output),
        }
    }
}
