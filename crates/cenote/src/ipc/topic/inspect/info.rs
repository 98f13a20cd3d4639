//! What a listing says about topics, publishers and subscribers.

use std::io;

use crate::ipc::discovery::socket_dir::Endpoint;
use crate::ipc::topic::inspect::publisher_query::PublisherQuery;
use crate::ipc::topic::report::ReportedSubscriber;
use crate::ipc::topic::stats;
use crate::ipc::topic::stats::StagedCopies;

/// A topic, as [`topics`](crate::topics) finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicInfo {
    /// The name, with dots.
    pub name: String,
    /// Whether this user may not read its directory. Then only the name is known.
    pub closed: bool,
    /// The publishers.
    pub publishers: Vec<PublisherInfo>,
    /// If there is no publisher: the processes that wait for one. Only processes whose `/proc` entry this user may read are
    /// found, and none of other containers.
    pub waiting: Vec<SubscriberInfo>,
}

/// A publisher of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublisherInfo {
    /// Its process id. 0 if this process cannot see it, or could not connect to it.
    pub pid: i32,
    /// Its program.
    pub program: String,
    /// The type of its messages. `None` if it did not answer: it may be stopped.
    pub carries: Option<String>,
    /// Whether it could not be queried because this user may not connect to it.
    pub closed: bool,
    /// How many messages it has sent. 0 if it did not answer.
    pub sent: u64,
    /// The uid of the publisher and of its pool.
    pub uid: u64,
    /// How many messages it keeps. 0 if it did not answer.
    pub depth: usize,
    /// Whether it waits for slow subscribers, or refuses to send. Otherwise it overwrites messages that they have not
    /// taken.
    pub waits: bool,
    /// Tensors that it copied before sending them, by reason. Reasons that never occurred are left out.
    pub copies: Vec<StagedCopies>,
    /// Its subscribers, at most 512.
    pub subscribers: Vec<SubscriberInfo>,
}

/// A subscriber of a publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberInfo {
    /// Its process id. 0 if the publisher cannot see it.
    pub pid: i32,
    /// Its program.
    pub program: String,
    /// How many messages it has not taken yet. If that is more than the depth of the topic, it will miss some.
    pub behind: u64,
}

impl TopicInfo {
    pub(crate) fn new(name: &str) -> TopicInfo {
        let (publishers, waiting) = (Vec::new(), Vec::new());
        TopicInfo { name: name.to_owned(), closed: false, publishers, waiting }
    }
}

impl PublisherInfo {
    /// A publisher that could not be queried.
    pub(crate) fn unknown(entry: &Endpoint, why: &io::Error) -> PublisherInfo {
        PublisherInfo {
            pid: 0,
            program: "unknown".to_owned(),
            carries: None,
            closed: why.kind() == io::ErrorKind::PermissionDenied,
            sent: 0,
            uid: entry.uid,
            depth: 0,
            waits: false,
            copies: Vec::new(),
            subscribers: Vec::new(),
        }
    }

    /// A publisher that was queried, whether or not it has answered.
    pub(crate) fn of(query: &PublisherQuery) -> PublisherInfo {
        let (peer, report) = (query.peer(), query.report().flatten());
        let head = report.as_ref().map(|report| &report.head);
        let size = |size| usize::try_from(size).unwrap_or(usize::MAX);
        let subscribers = report.as_ref().map(|report| report.subscribers.iter());
        PublisherInfo {
            pid: peer.pid,
            program: peer.program(),
            carries: head.map(|head| head.signature.to_string()),
            closed: false,
            sent: head.map_or(0, |head| head.sent),
            uid: query.uid,
            depth: head.map_or(0, |head| size(head.depth)),
            waits: head.is_some_and(|head| head.waits != 0),
            copies: head.map_or_else(Vec::new, |head| stats::staged(&head.copies)),
            subscribers: subscribers.into_iter().flatten().map(SubscriberInfo::of).collect(),
        }
    }
}

impl SubscriberInfo {
    fn of(reported: &ReportedSubscriber) -> SubscriberInfo {
        let ReportedSubscriber { behind, process } = reported;
        SubscriberInfo { pid: process.pid, program: process.program(), behind: *behind }
    }
}
