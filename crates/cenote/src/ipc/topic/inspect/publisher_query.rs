//! A query to a publisher: one packet on a separate connection, and its report as the answer.

use std::io;
use std::time::Duration;

use crate::error::Result;
use crate::ipc::discovery::query;
use crate::ipc::discovery::query::Query;
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::pool::registry;
use crate::ipc::shared::wire::Kind;
use crate::ipc::topic::report;
use crate::ipc::topic::report::PublisherReport;
use crate::sys::socket::peer::Peer;

/// A query that was sent.
#[derive(Debug)]
pub(crate) struct PublisherQuery {
    /// The uid of the publisher.
    pub(crate) uid: u64,
    inquiry: Query,
}

impl PublisherQuery {
    /// Queries a publisher. `None` if it has ended. The inner error means that it could not be queried, because its queue
    /// of connections is full or this user may not connect.
    pub(crate) fn send(
        dir: &SocketDir,
        entry: &Endpoint,
    ) -> Result<io::Result<Option<PublisherQuery>>> {
        let inquiry = Query::send(dir, entry, Kind::DescribeRequest)?;
        Ok(inquiry.map(|it| it.map(|inquiry| PublisherQuery { uid: entry.uid, inquiry })))
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.inquiry.peer
    }

    /// The report. `None` if it has not arrived yet, `Some(None)` if it makes no sense.
    pub(crate) fn report(&self) -> Option<Option<PublisherReport>> {
        let answer = self.inquiry.answer(report::MAX_BYTES);
        answer.map(|(bytes, fds)| PublisherReport::decode(&bytes, fds))
    }
}

/// Waits until all have answered, or the time is over.
pub(crate) fn await_reports<'a>(
    queries: impl Iterator<Item = &'a PublisherQuery> + Clone,
    time: Duration,
) {
    // Publishers of this very process answer at once, without the service thread.
    queries.clone().for_each(|query| registry::accept_now(query.uid));
    query::await_replies(queries.map(|query| &query.inquiry), time);
}
