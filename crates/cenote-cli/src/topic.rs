//! `cenote topic`: the vocabulary of `ros2 topic`.

mod bw;
mod echo;
mod hz;
mod info;
pub(crate) mod kind;
mod list;
mod publish;
mod snap;
pub(crate) mod watching;

use std::path::Path;

use cenote::{Tensor, Topic, TopicInfo, namespace_dir, topics};
use clap::Subcommand;

use crate::failure::{Failure, Outcome};
use crate::output::Output;

pub(crate) use info::{Publisher, Subscriber};
pub(crate) use list::{Line as TopicLine, count, table as topic_table};

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

/// A topic that somebody publishes, by any spelling of its name.
pub(crate) fn find(given: &str) -> Outcome<TopicInfo> {
    let found = find_any(given)?;
    match found.publishers.is_empty() {
        true => Err(nobody_publishes(&found.name)),
        false => Ok(found),
    }
}

/// A topic that somebody publishes, or waits for.
pub(crate) fn find_any(given: &str) -> Outcome<TopicInfo> {
    let topic: Topic<Tensor> = Topic::new(given)?;
    let name = topic.name();
    let found = topics()?.into_iter().find(|topic| topic.name == name);
    let found = found.map_or_else(|| Err(missing(name)?), Ok)?;
    match list::is_closed(&found) {
        true => Err(Failure::NoPermission(format!("`{name}` is closed to this user"))),
        false => Ok(found),
    }
}

fn nobody_publishes(name: &str) -> Failure {
    Failure::NotFound(format!("nobody publishes `{name}`, though somebody waits for it"))
}

fn missing(name: &str) -> Outcome<Failure> {
    let dir = namespace_dir()?;
    let left = has_sockets(&dir.join("topics").join(name));
    Ok(Failure::NotFound(match left {
        true => format!("nobody publishes `{name}` any more: its publishers are dead"),
        false => {
            let dir = dir.display();
            format!("there is no topic `{name}` in {dir}: see `cenote topic list`")
        }
    }))
}

fn has_sockets(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}
