//! All topics, with their publishers and subscribers.
//!
//! The directories have the topics and the publishers. Each publisher is queried for the rest. The query does not take part in the
//! topic.

use crate::error::Result;
use crate::intervals::QUERY_TIMEOUT;
use crate::ipc::discovery::query;
use crate::ipc::discovery::socket_dir::{SocketDir, is_denied};
use crate::ipc::topic::inspect::info::{PublisherInfo, TopicInfo};
use crate::ipc::topic::inspect::publisher_query::PublisherQuery;
use crate::ipc::topic::inspect::waiting::WatchedDir;
use crate::ipc::topic::inspect::{publisher_query, waiting};
use crate::ipc::topic::name::TopicName;

/// All topics of this namespace that have a publisher, or a subscriber that waits for one.
///
/// Publishers are queried together, and have 0.2 s to answer. One that is stopped, or that this user may not connect
/// to, is listed without its subscribers. Of a topic whose directory this user may not read, only the name is listed.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("cenote-list-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
/// let topic: cenote::Topic<f32> = cenote::Topic::new("speed")?;
/// topic.send(&1.5)?;
/// for topic in cenote::topics()? {
///     println!("{} has {} publishers", topic.name, topic.publishers.len());
/// }
/// # drop(topic); std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn topics() -> Result<Vec<TopicInfo>> {
    let (mut found, mut unpublished, mut closed) = (Vec::new(), Vec::new(), Vec::new());
    for names in names()?.chunks(query::PLACES_AT_ONCE) {
        for (topic, dir) in query_topics(names, &mut closed)? {
            if topic.publishers.is_empty() {
                unpublished.extend(WatchedDir::of(&dir).map(|watched| (found.len(), watched)));
            }
            found.push(topic);
        }
    }
    for (at, subscriber) in waiting::find(&unpublished) {
        found[at].waiting.push(subscriber);
    }
    found.retain(|topic| !topic.publishers.is_empty() || !topic.waiting.is_empty());
    found.extend(closed);
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Queries the publishers of some topics. Topics whose directory this user may not read go to `closed`.
fn query_topics(
    names: &[String],
    closed: &mut Vec<TopicInfo>,
) -> Result<Vec<(TopicInfo, SocketDir)>> {
    let (mut found, mut entries) = (Vec::new(), Vec::new());
    for name in names {
        let kind = format!("topics/{name}");
        let Some(dir) = SocketDir::find_one_of(&kind)? else {
            if SocketDir::find(&kind).is_err_and(|error| is_denied(&error)) {
                closed.push(TopicInfo { closed: true, ..TopicInfo::new(name) });
            }
            continue;
        };
        entries.extend(dir.endpoints()?.into_iter().map(|entry| (found.len(), entry)));
        found.push((TopicInfo::new(name), dir));
    }
    for entries in entries.chunks(query::AT_ONCE) {
        let queries = entries.iter().map(|(at, entry)| PublisherQuery::send(&found[*at].1, entry));
        let queries = queries.collect::<Result<Vec<_>>>()?;
        let sent = queries.iter().filter_map(|query| query.as_ref().ok()?.as_ref());
        publisher_query::await_reports(sent, QUERY_TIMEOUT);
        for ((at, entry), query) in entries.iter().zip(&queries) {
            found[*at].0.publishers.extend(match query {
                Ok(query) => query.as_ref().map(PublisherInfo::of),
                Err(error) => Some(PublisherInfo::unknown(entry, error)),
            });
        }
    }
    Ok(found)
}

/// The names of topics. Other programs can create directories, too: those whose names no topic can have are left out.
fn names() -> Result<Vec<String>> {
    let mut names = SocketDir::topics()?;
    names.retain(|name| TopicName::new(name).is_ok_and(|it| it.as_str() == *name));
    Ok(names)
}
