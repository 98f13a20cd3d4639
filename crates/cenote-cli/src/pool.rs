//! `cenote pool`

mod holders;
mod stat;

use cenote::{PoolInfo, namespace_dir, pools};
use clap::Subcommand;

use crate::failure::{Failure, Outcome};
use crate::ls;
use crate::output::Output;

pub(crate) use holders::Line as Attached;
pub(crate) use stat::{Line as PoolLine, table as pool_table};

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

/// Pools by name, which may be that of a topic, with or without its slashes. All, if no name is given.
pub(crate) fn find(given: Option<&str>) -> Outcome<Vec<PoolInfo>> {
    let mut found = pools()?;
    ls::note_closed()?;
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
