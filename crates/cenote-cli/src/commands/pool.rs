//! `cenote pool`

mod find;
mod holders;
mod stat;

use clap::Subcommand;

use crate::failure::Outcome;
use crate::output::Output;

pub(crate) use holders::HolderLine;
pub(crate) use stat::{PoolLine, pool_table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Stat(stat::Args),
    Holders(holders::Args),
}

impl Command {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        match self {
            Command::Stat(args) => args.run(output),
            Command::Holders(args) => args.run(output),
        }
    }
}
