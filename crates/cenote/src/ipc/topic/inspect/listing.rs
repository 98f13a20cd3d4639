//! Which topics there are, and who publishes and subscribes.
//!
//! The directories say which topics and publishers there are; the publishers are asked for the rest.
//! Nobody who looks takes part: it is one question on a connection of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytemuck::{Pod, Zeroable};

use crate::error::{Error, Result};
use crate::intervals::{QUERY_TIMEOUT, WITHDRAW_POLL, WITHDRAW_TIMEOUT};
use crate::ipc::discovery::query;
use crate::ipc::discovery::query::Query;
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir, is_denied};
use crate::ipc::pool::registry;
use crate::ipc::ring::cursor::MappedRing;
use crate::ipc::shared::wire::{Kind, NamedProcess, Packet};
use crate::ipc::topic::inspect::waiting;
use crate::ipc::topic::inspect::waiting::Mark;
use crate::ipc::topic::name::TopicName;
use crate::ipc::topic::signature::Signature;
use crate::ipc::topic::stats;
use crate::ipc::topic::stats::{REASONS, StagedCopies};
use crate::sys::socket::peer::Peer;

/// The most subscribers that are told of: what fits a packet.
const MAX_TOLD: usize = 512;

/// A topic, as [`topics`] finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicInfo {
    /// The name, with dots.
    pub name: String,
    /// Whether its directory is closed to this user: then nothing else is known of it.
    pub closed: bool,
    /// Who publishes.
    pub publishers: Vec<PublisherInfo>,
    /// Where nobody publishes: who waits for somebody to. Only processes that this user may look into and
    /// that have a process id here can be found; those of other containers cannot.
    pub waiting: Vec<SubscriberInfo>,
}

/// A publisher of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublisherInfo {
    /// Its process id; 0 if it cannot be seen from here, or could not be asked.
    pub pid: i32,
    /// Its program.
    pub program: String,
    /// The type of its messages. `None` if it did not answer: it may be stopped.
    pub carries: Option<String>,
    /// Whether it could not be asked, because it is closed to this user.
    pub closed: bool,
    /// How many messages it has sent; 0 if it did not answer.
    pub sent: u64,
    /// The number that it and its pool are known by.
    pub uid: u64,
    /// How many messages it keeps; 0 if it did not answer.
    pub depth: usize,
    /// Whether it waits for slow subscribers, or refuses to send, rather than push out what they have
    /// not taken.
    pub waits: bool,
    /// Tensors that had to be copied before they were sent, by reason; those that never happened are
    /// left out.
    pub copies: Vec<StagedCopies>,
    /// Who subscribes, as far as it knows; at most 512 are told of.
    pub subscribers: Vec<SubscriberInfo>,
}

/// A subscriber of a publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberInfo {
    /// Its process id; 0 if the publisher cannot see it.
    pub pid: i32,
    /// Its program.
    pub program: String,
    /// How many messages it has still to take. More than the depth of the topic means that it will
    /// miss some.
    pub behind: u64,
}

/// All topics of this namespace that have a publisher, or subscribers that wait for one.
///
/// Publishers are asked many at once, and have 0.2 s to answer: one that is stopped is listed without its
/// subscribers, as is one that is closed to this user. Of a topic whose directory is closed there is the name.
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
    let (mut found, mut quiet, mut closed) = (Vec::new(), Vec::new(), Vec::new());
    for names in names()?.chunks(query::PLACES_AT_ONCE) {
        for (topic, place) in look_at(names, &mut closed)? {
            if topic.publishers.is_empty() {
                quiet.extend(Mark::of(&place).map(|mark| (found.len(), mark)));
            }
            found.push(topic);
        }
    }
    for (at, subscriber) in waiting::find(&quiet) {
        found[at].waiting.push(subscriber);
    }
    found.retain(|topic| !topic.publishers.is_empty() || !topic.waiting.is_empty());
    found.extend(closed);
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Asks the publishers of some topics. Those that are closed are told apart.
fn look_at(names: &[String], closed: &mut Vec<TopicInfo>) -> Result<Vec<(TopicInfo, SocketDir)>> {
    let (mut found, mut entries) = (Vec::new(), Vec::new());
    for name in names {
        let kind = format!("topics/{name}");
        let Some(place) = SocketDir::find_one_of(&kind)? else {
            if SocketDir::find(&kind).is_err_and(|error| is_denied(&error)) {
                closed.push(TopicInfo { closed: true, ..TopicInfo::new(name) });
            }
            continue;
        };
        entries.extend(place.endpoints()?.into_iter().map(|entry| (found.len(), entry)));
        found.push((TopicInfo::new(name), place));
    }
    for entries in entries.chunks(query::AT_ONCE) {
        let asked = entries.iter().map(|(at, entry)| ask(&found[*at].1, entry));
        let asked = asked.collect::<Result<Vec<_>>>()?;
        let answering = asked.iter().filter_map(|asked| asked.as_ref().ok()?.as_ref());
        await_replies(answering, QUERY_TIMEOUT);
        for ((at, entry), asked) in entries.iter().zip(&asked) {
            found[*at].0.publishers.extend(match asked {
                Ok(asked) => asked.as_ref().map(info),
                Err(error) => Some(PublisherInfo::unknown(entry, error)),
            });
        }
    }
    Ok(found)
}

impl TopicInfo {
    fn new(name: &str) -> TopicInfo {
        let (publishers, waiting) = (Vec::new(), Vec::new());
        TopicInfo { name: name.to_owned(), closed: false, publishers, waiting }
    }
}

impl PublisherInfo {
    /// One that cannot be asked.
    fn unknown(entry: &Endpoint, why: &io::Error) -> PublisherInfo {
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
}

/// The names of topics. Others may make directories, too: names that cannot be are left out.
fn names() -> Result<Vec<String>> {
    let mut names = SocketDir::topics()?;
    names.retain(|name| TopicName::new(name).is_ok_and(|it| it.as_str() == *name));
    Ok(names)
}

/// An error if a publisher of the topic sends something else.
pub(crate) fn check_type(
    place: &SocketDir,
    publishers: &[Endpoint],
    topic: &str,
    ours: &Signature,
) -> Result<()> {
    for entries in publishers.chunks(query::AT_ONCE) {
        // Of those that cannot be asked, nobody can tell.
        let asked = entries.iter().map(|entry| ask(place, entry)).collect::<Result<Vec<_>>>()?;
        let asked: Vec<Asked> = asked.into_iter().filter_map(|asked| asked.ok()?).collect();
        await_replies(asked.iter(), QUERY_TIMEOUT);
        for asked in asked {
            if let Some(Some(told)) = asked.told()
                && told.head.signature != *ours
            {
                return Err(ours.mismatch(topic, &told.head.signature, asked.peer()));
            }
        }
    }
    Ok(())
}

/// The same of those who began to publish while this one did: of two that send different things, that with the
/// higher uid gives way. But it may have looked before this one was there, and then it stays.
pub(crate) fn check_newcomers(
    place: &SocketDir,
    newcomers: Vec<Endpoint>,
    uid: u64,
    topic: &str,
    ours: &Signature,
) -> Result<()> {
    let (lower, higher): (Vec<_>, Vec<_>) = newcomers.into_iter().partition(|one| one.uid < uid);
    check_type(place, &lower, topic, ours)?;
    let start = Instant::now();
    loop {
        match check_type(place, &higher, topic, ours) {
            Err(Error::TypeMismatch { .. }) if start.elapsed() < WITHDRAW_TIMEOUT => {
                sleep(WITHDRAW_POLL);
            }
            done => return done,
        }
    }
}

/// A publisher that was asked who it is.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) uid: u64,
    pub(crate) inquiry: Query,
}

/// Asks a publisher; `None` if it is not there. It may be there and not be asked, for too many did, or it is
/// closed to this user: that is the inner error.
pub(crate) fn ask(place: &SocketDir, entry: &Endpoint) -> Result<io::Result<Option<Asked>>> {
    let asked = Query::send(place, entry, Kind::DescribeRequest)?;
    Ok(asked.map(|it| it.map(|inquiry| Asked { uid: entry.uid, inquiry })))
}

/// Waits until all have answered, or the time is over.
pub(crate) fn await_replies<'a>(asked: impl Iterator<Item = &'a Asked> + Clone, time: Duration) {
    // Those of this very process need not wake up for it.
    asked.clone().for_each(|asked| registry::accept_now(asked.uid));
    query::await_replies(asked.map(|asked| &asked.inquiry), time);
}

impl Asked {
    pub(crate) fn peer(&self) -> &Peer {
        &self.inquiry.peer
    }

    /// Its answer, which may be nonsense; `None` if it has not come yet.
    pub(crate) fn told(&self) -> Option<Option<Told>> {
        let room = size_of::<Head>() + MAX_TOLD * size_of::<Line>();
        self.inquiry.answer(room).map(|(bytes, fds)| Told::read(&bytes, fds))
    }
}

fn info(asked: &Asked) -> PublisherInfo {
    let (peer, told) = (asked.peer(), asked.told().flatten());
    let head = told.as_ref().map(|told| &told.head);
    let size = |size| usize::try_from(size).unwrap_or(usize::MAX);
    PublisherInfo {
        pid: peer.pid,
        program: peer.program(),
        carries: head.map(|head| head.signature.to_string()),
        closed: false,
        sent: head.map_or(0, |head| head.sent),
        uid: asked.uid,
        depth: head.map_or(0, |head| size(head.depth)),
        waits: head.is_some_and(|head| head.waits != 0),
        copies: head.map_or_else(Vec::new, |head| stats::staged(&head.copies)),
        subscribers: told.map_or_else(Vec::new, |told| told.lines.iter().map(Line::info).collect()),
    }
}

/// What a publisher tells about itself.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Head {
    packet: Packet,
    pub(crate) sent: u64,
    pub(crate) signature: Signature,
    /// The sequence that the ring began with, and its size.
    pub(crate) first: u64,
    pub(crate) depth: u64,
    pub(crate) payload: u64,
    /// Non-zero: it waits for its subscribers.
    pub(crate) waits: u64,
    /// How often and how much was copied, by reason.
    pub(crate) copies: [[u64; 2]; REASONS.len()],
}

/// And about each of its subscribers.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Line {
    behind: u64,
    who: NamedProcess,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) head: Head,
    lines: Vec<Line>,
    /// The ring, to be looked at.
    pub(crate) ring: Option<OwnedFd>,
}

impl Line {
    pub(crate) fn new(pid: i32, program: &str, behind: u64) -> Line {
        Line { behind, who: NamedProcess::new(pid, program) }
    }

    fn info(&self) -> SubscriberInfo {
        let Line { behind, who } = self;
        SubscriberInfo { pid: who.pid, program: who.program(), behind: *behind }
    }
}

impl Head {
    pub(crate) fn new(signature: Signature, sent: u64, ring: &MappedRing, waits: bool) -> Head {
        Head {
            packet: Packet::new(Kind::Description),
            sent,
            signature,
            first: ring.first,
            depth: ring.shape.depth,
            payload: ring.shape.payload() as u64,
            waits: waits.into(),
            copies: Zeroable::zeroed(),
        }
    }
}

/// The answer of a publisher, as it is sent.
pub(crate) fn answer_bytes(head: &Head, lines: impl Iterator<Item = Line>) -> Vec<u8> {
    let mut bytes = bytemuck::bytes_of(head).to_vec();
    lines.take(MAX_TOLD).for_each(|line| bytes.extend_from_slice(bytemuck::bytes_of(&line)));
    bytes
}

impl Told {
    /// What a stranger says.
    fn read(bytes: &[u8], mut fds: Vec<OwnedFd>) -> Option<Told> {
        let (head, lines) = bytes.split_at_checked(size_of::<Head>())?;
        let (Kind::Description, _) = Packet::parse(head).ok()? else { return None };
        let lines = lines.chunks_exact(size_of::<Line>()).map(bytemuck::pod_read_unaligned);
        let head = bytemuck::pod_read_unaligned(head);
        Some(Told { head, lines: lines.collect(), ring: fds.pop() })
    }
}
