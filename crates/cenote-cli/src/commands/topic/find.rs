//! Finds a topic by name.

use std::path::Path;

use cenote::{Tensor, Topic, TopicInfo, namespace_dir, topics};

use crate::commands::topic::list;
use crate::failure::{Failure, Outcome};

/// Finds a topic by any spelling of its name. Returns an error if it has no publisher.
pub(crate) fn published_topic(given: &str) -> Outcome<TopicInfo> {
    let found = topic(given)?;
    match found.publishers.is_empty() {
        true => Err(no_publisher(&found.name)),
        false => Ok(found),
    }
}

/// Finds a topic that has a publisher or a waiting subscriber. Returns an error if there is none, or if this user
/// may not connect to any of its publishers.
pub(crate) fn topic(given: &str) -> Outcome<TopicInfo> {
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
