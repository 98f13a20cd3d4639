//! What exists in this namespace: `cenote.topics`, `cenote.pools`; and the copies of this process:
//! `cenote.copies`.

pub(crate) mod copies;

use cenote::{PoolAccount, PoolInfo, PublisherInfo, SubscriberInfo, TopicInfo};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::pool::{holder_dict, stats_dict};
use crate::runtime::error::Result;

/// The topics that have a publisher, or subscribers that wait for one, as a list of dicts:
///
/// - of a topic: `name`, `closed` (whether this user may not use it), `publishers`, and `waiting` (the
///   subscribers of a topic without a publisher);
/// - of a publisher: `pid`, `program`, `carries` (the type of its messages, or None if it did not answer
///   within 0.2 seconds), `closed`, `sent` (the number of messages), `uid`, `depth`, `waits` (whether it waits
///   for slow subscribers), `copies` by reason, and `subscribers`;
/// - of a subscriber: `pid`, `program`, and `behind` (the number of messages that it has not received yet).
///
/// The call does not disturb publishers and subscribers.
///
/// >>> with cenote.Topic("listed", cenote.Image) as topic:
/// ...     topic.send(cenote.Image(64, 48))
/// ...     found = {topic["name"]: topic for topic in cenote.topics()}
/// >>> publisher, = found["listed"]["publishers"]
/// >>> publisher["carries"], publisher["sent"], publisher["subscribers"]
/// ('Image', 1, [])
#[pyfunction]
pub(crate) fn topics(py: Python<'_>) -> Result<Vec<Bound<'_, PyDict>>> {
    let found = py.detach(cenote::topics)?;
    Ok(found.iter().map(|topic| topic_dict(py, topic)).collect::<PyResult<_>>()?)
}

/// The pools that have an owner, including those of publishers, as a list of dicts with `name`, `of_topic`,
/// `uid`, the owner's `pid` and `program`, and `account`.
///
/// `account` is None if the owner did not answer within 0.2 seconds. Otherwise it is a dict with `stats` (as of
/// `TensorPool.stats`), `processes` (as of `TensorPool.holders`), and the `copies` of the owner's process.
///
/// >>> with cenote.TensorPool("listed", size_mb=64) as pool:
/// ...     frame = pool.alloc((480, 640))
/// ...     found = {pool["name"]: pool for pool in cenote.pools()}
/// >>> found["listed"]["account"]["stats"]["slots_in_use"]
/// 1
#[pyfunction]
pub(crate) fn pools(py: Python<'_>) -> Result<Vec<Bound<'_, PyDict>>> {
    let found = py.detach(cenote::pools)?;
    Ok(found.iter().map(|pool| pool_dict(py, pool)).collect::<PyResult<_>>()?)
}

fn topic_dict<'py>(py: Python<'py>, topic: &TopicInfo) -> PyResult<Bound<'py, PyDict>> {
    let publishers = topic.publishers.iter().map(|publisher| publisher_dict(py, publisher));
    let dict = PyDict::new(py);
    dict.set_item("name", &topic.name)?;
    dict.set_item("closed", topic.closed)?;
    dict.set_item("publishers", publishers.collect::<PyResult<Vec<_>>>()?)?;
    dict.set_item("waiting", subscriber_dicts(py, &topic.waiting)?)?;
    Ok(dict)
}

fn publisher_dict<'py>(py: Python<'py>, publisher: &PublisherInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("pid", publisher.pid)?;
    dict.set_item("program", &publisher.program)?;
    dict.set_item("carries", publisher.carries.as_deref())?;
    dict.set_item("closed", publisher.closed)?;
    dict.set_item("sent", publisher.sent)?;
    dict.set_item("uid", publisher.uid)?;
    dict.set_item("depth", publisher.depth)?;
    dict.set_item("waits", publisher.waits)?;
    dict.set_item("copies", copies::of_topic(py, &publisher.copies)?)?;
    dict.set_item("subscribers", subscriber_dicts(py, &publisher.subscribers)?)?;
    Ok(dict)
}

fn subscriber_dicts<'py>(
    py: Python<'py>,
    subscribers: &[SubscriberInfo],
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let as_dict = |subscriber: &SubscriberInfo| {
        let dict = PyDict::new(py);
        dict.set_item("pid", subscriber.pid)?;
        dict.set_item("program", &subscriber.program)?;
        dict.set_item("behind", subscriber.behind)?;
        Ok(dict)
    };
    subscribers.iter().map(as_dict).collect()
}

fn pool_dict<'py>(py: Python<'py>, pool: &PoolInfo) -> PyResult<Bound<'py, PyDict>> {
    let account = pool.account.as_ref().map(|account| account_dict(py, account)).transpose()?;
    let dict = PyDict::new(py);
    dict.set_item("name", &pool.name)?;
    dict.set_item("of_topic", pool.of_topic)?;
    dict.set_item("uid", pool.uid)?;
    dict.set_item("pid", pool.pid)?;
    dict.set_item("program", &pool.program)?;
    dict.set_item("account", account)?;
    Ok(dict)
}

fn account_dict<'py>(py: Python<'py>, account: &PoolAccount) -> PyResult<Bound<'py, PyDict>> {
    let processes = account.processes.iter().map(|holder| holder_dict(py, holder));
    let dict = PyDict::new(py);
    dict.set_item("stats", stats_dict(py, &account.stats)?)?;
    dict.set_item("processes", processes.collect::<PyResult<Vec<_>>>()?)?;
    dict.set_item("copies", copies::of_process(py, &account.copies)?)?;
    Ok(dict)
}
