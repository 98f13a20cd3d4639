//! `cenote pool`

mod holders;
mod stat;

use cenote::{PoolInfo, namespace_dir, pools};
use clap::Subcommand;

use crate::commands::socket_dir;
use crate::failure::{Failure, Outcome};
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

/// Finds pools by name. The name of a topic stands for the pools of its publishers, and may be spelled with
/// slashes. Returns all pools if no name is given, and an error if none has the name.
pub(crate) fn find(given: Option<&str>) -> Outcome<Vec<PoolInfo>> {
    let mut found = pools()?;
    socket_dir::warn_of_closed_dirs()?;
    let Some(given) = given else { return Ok(found) };
    let name = given.strip_prefix('/').unwrap_or(given).replace('/', ".");
    found.retain(|pool| pool.name == name);
    if found.is_empty() {
        let dir = namespace_dir()?;
        let text = format!("there is no pool `{name}` in {}: see `cenote ls`", dir.display());
        return Err(Failure::NotFound(text));
    }
    Ok(found)
}
