//! `cenote topic`: the subcommands of `ros2 topic`, and `snap`.

mod bw;
mod echo;
pub(crate) mod find;
mod hz;
mod info;
mod list;
mod presence;
mod publish;
mod readings;
mod snap;
pub(crate) mod type_name;

use clap::Subcommand;

use crate::failure::Outcome;
use crate::output::Output;

pub(crate) use info::{Publisher, Subscriber};
pub(crate) use list::{TopicLine, topic_table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Info(info::Args),
    Hz(hz::Args),
    Bw(bw::Args),
    Echo(echo::Args),
    #[command(name = "pub")]
    Pub(publish::Args),
    Snap(snap::Args),
}

impl Command {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        match self {
            Command::List(args) => args.run(output),
            Command::Info(args) => args.run(output),
            Command::Hz(args) => args.run(output),
            Command::Bw(args) => args.run(output),
            Command::Echo(args) => args.run(output),
            Command::Pub(args) => args.run(output),
            Command::Snap(args) => args.run(output),
        }
    }
}
