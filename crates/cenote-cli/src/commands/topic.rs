//! `cenote topic`: the subcommands of `ros2 topic`, and `snap`.

mod bw;
mod echo;
mod hz;
mod info;
mod list;
mod presence;
mod publish;
mod readings;
mod snap;
pub(crate) mod type_name;

use std::path::Path;

use cenote::{Tensor, Topic, TopicInfo, namespace_dir, topics};
use clap::Subcommand;

use crate::failure::{Failure, Outcome};
use crate::output::Output;

pub(crate) use info::{Publisher, Subscriber};
pub(crate) use list::{TopicLine, count, topic_table};

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

/// Finds a topic by any spelling of its name. Returns an error if it has no publisher.
pub(crate) fn find(given: &str) -> Outcome<TopicInfo> {
    let found = find_any(given)?;
    match found.publishers.is_empty() {
        true => Err(no_publisher(&found.name)),
        false => Ok(found),
    }
}

/// Finds a topic that has a publisher or a waiting subscriber. Returns an error if there is none, or if this user
/// may not connect to any of its publishers.
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

fn no_publisher(name: &str) -> Failure {
    Failure::NotFound(format!("topic `{name}` has no publisher, only waiting subscribers"))
}

/// The failure of a topic that is not listed: its publishers are dead if their sockets are still there.
fn missing(name: &str) -> Outcome<Failure> {
    let dir = namespace_dir()?;
    let left = has_sockets(&dir.join("topics").join(name));
    Ok(Failure::NotFound(match left {
        true => format!("topic `{name}` has no publisher any more: its publishers are dead"),
        false => {
            let dir = dir.display();
            format!("there is no topic `{name}` in {dir}: see `cenote topic list`")
        }
    }))
}

fn has_sockets(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}
