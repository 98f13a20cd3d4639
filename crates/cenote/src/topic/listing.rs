//! Which topics there are, and who publishes and subscribes.
//!
//! The directories say which topics and publishers there are; the publishers are asked for the rest.
//! Nobody who looks takes part: it is one question on a connection of its own.

use std::os::fd::AsFd;
use std::time::Duration;

use bytemuck::{Pod, Zeroable};

use crate::error::Result;
use crate::os::fork::GuardedSocket;
use crate::os::packet;
use crate::os::peer::Peer;
use crate::os::unix;
use crate::pool::place::{Entry, Place};
use crate::pool::wire::{Kind, Packet};
use crate::topic::signature::Signature;

/// How long a publisher may take to answer. One that is stopped is listed without its subscribers.
const ANSWER: Duration = Duration::from_millis(200);

/// The most subscribers that are told of: what fits a packet.
const MAX_TOLD: usize = 512;

/// A topic, as [`topics`] finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicInfo {
    /// The name, with dots.
    pub name: String,
    /// Who publishes.
    pub publishers: Vec<PublisherInfo>,
}

/// A publisher of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublisherInfo {
    /// Its process id; 0 if it cannot be seen from here.
    pub pid: i32,
    /// Its program.
    pub program: String,
    /// The type of its messages. `None` if it did not answer: it may be stopped.
    pub carries: Option<String>,
    /// How many messages it has sent; 0 if it did not answer.
    pub sent: u64,
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

/// All topics of this namespace that have a publisher.
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
    let Some(all) = Place::find("topics")? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for name in all.directories()? {
        // One that is closed to this user hides no other.
        let Ok(Some(place)) = Place::find(&format!("topics/{name}")) else { continue };
        let publishers = publishers(&place)?;
        if !publishers.is_empty() {
            found.push(TopicInfo { name, publishers });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Everybody who publishes in a topic's directory.
fn publishers(place: &Place) -> Result<Vec<PublisherInfo>> {
    let ask = |entry: &Entry| ask(place, entry).map(|(peer, told)| info(&peer, told));
    Ok(place.entries()?.iter().filter_map(ask).collect())
}

/// An error if a publisher of the topic sends something else.
pub(crate) fn check_type(place: &Place, topic: &str, ours: &Signature) -> Result<()> {
    for entry in place.entries()? {
        if let Some((peer, Some(told))) = ask(place, &entry)
            && told.head.signature != *ours
        {
            return Err(ours.mismatch(topic, &told.head.signature, &peer));
        }
    }
    Ok(())
}

/// Asks a publisher; `None` if it is not there.
fn ask(place: &Place, entry: &Entry) -> Option<(Peer, Option<Told>)> {
    let connection = place.connect(entry).ok()?;
    let peer = Peer::of(connection.as_fd()).ok().filter(|peer| !peer.has_ended())?;
    Some((peer, answer(&connection)))
}

fn answer(connection: &GuardedSocket) -> Option<Told> {
    let who = Packet::new(Kind::Who);
    packet::send(connection.as_fd(), bytemuck::bytes_of(&who), &[]).ok()?;
    unix::wait_readable(connection, ANSWER).ok().filter(|ready| *ready)?;
    let mut bytes = vec![0; size_of::<Head>() + MAX_TOLD * size_of::<Line>()];
    let (len, _) = packet::recv(connection.as_fd(), &mut bytes).ok()?;
    Told::read(&bytes[..len])
}

fn info(peer: &Peer, told: Option<Told>) -> PublisherInfo {
    let carries = told.as_ref().map(|told| told.head.signature.to_string());
    PublisherInfo {
        pid: peer.pid,
        program: peer.program(),
        carries,
        sent: told.as_ref().map_or(0, |told| told.head.sent),
        subscribers: told.map_or_else(Vec::new, |told| told.lines.iter().map(Line::info).collect()),
    }
}

/// What a publisher tells about itself.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Head {
    packet: Packet,
    sent: u64,
    signature: Signature,
}

/// And about each of its subscribers.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Line {
    behind: u64,
    pid: i32,
    len: u32,
    program: [u8; 16],
}

/// What came back.
struct Told {
    head: Head,
    lines: Vec<Line>,
}

impl Line {
    pub(crate) fn new(pid: i32, program: &str, behind: u64) -> Line {
        let mut line = Line { behind, pid, ..Line::zeroed() };
        let bytes = program.as_bytes();
        let len = bytes.len().min(line.program.len());
        line.program[..len].copy_from_slice(&bytes[..len]);
        line.len = u32::try_from(len).unwrap_or(0);
        line
    }

    fn info(&self) -> SubscriberInfo {
        let len = (self.len as usize).min(self.program.len());
        let program = String::from_utf8_lossy(&self.program[..len]);
        let program = program.replace(char::is_control, "?");
        SubscriberInfo { pid: self.pid, program, behind: self.behind }
    }
}

/// The answer of a publisher, as it is sent.
pub(crate) fn answer_bytes(
    signature: Signature,
    sent: u64,
    lines: impl Iterator<Item = Line>,
) -> Vec<u8> {
    let head = Head { packet: Packet::new(Kind::Told), sent, signature };
    let mut bytes = bytemuck::bytes_of(&head).to_vec();
    lines.take(MAX_TOLD).for_each(|line| bytes.extend_from_slice(bytemuck::bytes_of(&line)));
    bytes
}

impl Told {
    /// What a stranger says.
    fn read(bytes: &[u8]) -> Option<Told> {
        let (head, lines) = bytes.split_at_checked(size_of::<Head>())?;
        let (Kind::Told, _) = Packet::parse(head).ok()? else { return None };
        let lines = lines.chunks_exact(size_of::<Line>()).map(bytemuck::pod_read_unaligned);
        Some(Told { head: bytemuck::pod_read_unaligned(head), lines: lines.collect() })
    }
}
