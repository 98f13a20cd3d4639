//! All publishers of a topic send the same type: a new publisher queries the others before and after it appears.

use std::thread::sleep;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::intervals::{QUERY_TIMEOUT, WITHDRAW_POLL, WITHDRAW_TIMEOUT};
use crate::ipc::discovery::query;
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::topic::inspect::publisher_query;
use crate::ipc::topic::inspect::publisher_query::PublisherQuery;
use crate::ipc::topic::signature::Signature;

/// Fails with [`TypeMismatch`](Error::TypeMismatch) if one of these publishers sends another type. Publishers that do not
/// answer are ignored.
pub(crate) fn check_type(
    dir: &SocketDir,
    publishers: &[Endpoint],
    topic: &str,
    ours: &Signature,
) -> Result<()> {
    for entries in publishers.chunks(query::AT_ONCE) {
        let queries = entries.iter().map(|entry| PublisherQuery::send(dir, entry));
        let queries = queries.collect::<Result<Vec<_>>>()?;
        let queries: Vec<PublisherQuery> =
            queries.into_iter().filter_map(|query| query.ok()?).collect();
        publisher_query::await_reports(queries.iter(), QUERY_TIMEOUT);
        for query in queries {
            if let Some(Some(report)) = query.report()
                && report.head.signature != *ours
            {
                return Err(ours.mismatch(topic, &report.head.signature, query.peer()));
            }
        }
    }
    Ok(())
}

/// [`check_type`] for publishers that appeared at the same time as this one, whose uid is `uid`. Of two that send different
/// types, the one with the higher uid withdraws. It may have read the directory before this one appeared; then it
/// stays, and this one fails.
pub(crate) fn check_newcomers(
    dir: &SocketDir,
    newcomers: Vec<Endpoint>,
    uid: u64,
    topic: &str,
    ours: &Signature,
) -> Result<()> {
    let (lower, higher): (Vec<_>, Vec<_>) = newcomers.into_iter().partition(|one| one.uid < uid);
    check_type(dir, &lower, topic, ours)?;
    let start = Instant::now();
    loop {
        match check_type(dir, &higher, topic, ours) {
            Err(Error::TypeMismatch { .. }) if start.elapsed() < WITHDRAW_TIMEOUT => {
                sleep(WITHDRAW_POLL);
            }
            done => return done,
        }
    }
}
