//! Observing a topic without taking part in it.
//!
//! The report of a publisher (`ipc/topic/report.rs`) comes with its ring. An observer maps the ring read-only and has
//! no row, so no publisher waits for it, wakes it or counts it. It reads what the ring says about a message without a lease. Only
//! [`Observer::content`] attaches to the pool and leases the slot, as any process with a descriptor may.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crate::domain::Domain;
use crate::domain::cloud::PointCloud;
use crate::domain::depth::DepthImage;
use crate::domain::image::Image;
use crate::error::{Error, Result};
use crate::intervals::{
    OBSERVER_CONNECT_TIMEOUT, OBSERVER_IGNORES, OBSERVER_POLL, OBSERVER_SEGMENT_TIMEOUT,
    QUERY_TIMEOUT, SKIPPED_MESSAGES, UNRESOLVED_POLL,
};
use crate::ipc::discovery::query;
use crate::ipc::discovery::socket_dir::SocketDir;
use crate::ipc::pool::registry;
use crate::ipc::ring::codec::TensorEntry;
use crate::ipc::ring::cursor::{Cursor, MappedRing};
use crate::ipc::ring::layout_cache::LayoutCache;
use crate::ipc::ring::orderings::Shipped;
use crate::ipc::ring::ring::{Found, RingShape};
use crate::ipc::shared::fd_checks;
use crate::ipc::topic::inspect::publisher_query;
use crate::ipc::topic::inspect::publisher_query::PublisherQuery;
use crate::ipc::topic::name::TopicName;
use crate::ipc::topic::report::PublisherReport;
use crate::ipc::topic::signature::Signature;
use crate::memory::kind::TensorMemory;
use crate::sys::socket::peer::Peer;
use crate::tensor::Tensor;
use crate::tensor::buffer::handle::Handle;
use crate::types::dtype::DType;
use crate::types::metadata::Words;
use crate::types::metadata::header::Header;
use crate::types::pixel_format::PixelFormat;

/// Observes the messages of a topic. Publishers do not count it as a subscriber: whatever their policy, they neither wait for it
/// nor wake it.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("cenote-observer-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
/// use cenote::{Content, Observer, Topic};
///
/// let topic: Topic<[f32; 2]> = Topic::new("speed")?;
/// topic.advertise()?;
/// let mut observer = Observer::new("speed")?;
/// topic.send(&[1.0, 2.0])?;
/// let seen = observer.look()?.expect("what was just sent");
/// assert_eq!((seen.sequence, seen.nbytes), (0, 8));
/// assert!(matches!(observer.content(&seen)?, Some(Content::Plain(bytes)) if bytes.len() == 8));
/// # drop(topic); std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Observer {
    topic: TopicName,
    observed: Vec<ObservedPublisher>,
    /// The publisher to look at first.
    turn: usize,
    /// Publishers that have not answered, and whether they were there when the observer was made.
    queries: Vec<(PublisherQuery, bool)>,
    /// Publishers whose answer made no sense, and when it came. A later answer may make sense: a publisher that is short of
    /// descriptors closes the connection.
    ignored: Vec<(u64, Instant)>,
    /// When the directory was read last.
    scanned: Option<Instant>,
    missed: u64,
}

/// A publisher that is observed.
#[derive(Debug)]
struct ObservedPublisher {
    uid: u64,
    peer: Peer,
    signature: Signature,
    cursor: Cursor,
}

/// What the ring says about a message. Its slot may be reused by now.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sighting {
    /// The uid of the publisher and of its pool.
    pub publisher: u64,
    /// The publisher's process id. 0 if this process cannot see it.
    pub pid: i32,
    /// How many messages the publisher had sent before.
    pub sequence: u64,
    /// The type of the message.
    pub carries: String,
    /// The number of bytes of the tensor, or of the plain data. Of a point cloud, only its points count.
    pub nbytes: usize,
    /// The element type of the tensor. `None` for plain data.
    pub dtype: Option<DType>,
    /// The shape of the tensor; empty for plain data. A point cloud has as many rows as points, even if its tensor has room
    /// for more.
    pub shape: Vec<usize>,
    /// The pixel format of the tensor.
    pub format: Option<PixelFormat>,
    /// The header, if the message has one.
    pub header: Option<Header>,
    /// The words of the message in the ring.
    words: Vec<u64>,
}

/// A message that an [`Observer`] has leased. The lease ends when this is dropped.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Content {
    /// Plain data, as bytes.
    Plain(Vec<u8>),
    /// A tensor.
    Tensor(Tensor),
    /// An image.
    Image(Image),
    /// A point cloud.
    Cloud(PointCloud),
    /// A depth image.
    Depth(DepthImage),
}

impl Observer {
    /// Begins to observe a topic. It need not have a publisher yet.
    pub fn new(topic: &str) -> Result<Observer> {
        let mut observer = Observer {
            topic: TopicName::new(topic)?,
            observed: Vec::new(),
            turn: 0,
            queries: Vec::new(),
            ignored: Vec::new(),
            scanned: None,
            missed: 0,
        };
        observer.find_publishers()?;
        Ok(observer)
    }

    /// How many publishers are observed.
    pub fn publishers(&self) -> usize {
        self.observed.len()
    }

    /// How many messages were overwritten before they were observed.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The next message, if there is one. Of publishers that were there when the observer was made, only later messages count;
    /// of others, all that are in the ring. Publishers take turns. Never waits for messages.
    ///
    /// Returns [`Error::BadMessage`] for a message that makes no sense, and skips it.
    pub fn look(&mut self) -> Result<Option<Sighting>> {
        if self.scanned.is_none_or(|scanned| scanned.elapsed() >= OBSERVER_POLL) {
            self.find_publishers()?;
        }
        for _ in 0..self.observed.len() {
            let at = self.next_turn();
            let found = self.observed[at].next(&mut self.missed);
            if !matches!(found, Ok(None)) {
                return found;
            }
        }
        Ok(None)
    }

    /// The newest message of one publisher, even if it was observed before. Publishers take turns. Skips earlier messages of that
    /// publisher: [`look`](Observer::look) continues after this one.
    pub fn newest(&mut self) -> Result<Option<Sighting>> {
        self.find_publishers()?;
        let mut wrong = Ok(None);
        for _ in 0..self.observed.len() {
            let at = self.next_turn();
            match self.observed[at].newest() {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                // Messages of other publishers may make sense.
                Err(error) => wrong = Err(error),
            }
        }
        wrong
    }

    /// Leases the message, and returns it with its bytes. `None` if it was overwritten.
    pub fn content(&self, seen: &Sighting) -> Result<Option<Content>> {
        if seen.dtype.is_none() {
            let bytes: &[u8] = bytemuck::cast_slice(&seen.words);
            let bytes = bytes.get(..seen.nbytes).unwrap_or(bytes);
            return Ok(Some(Content::Plain(bytes.to_vec())));
        }
        let mut layouts = LayoutCache::new(seen.publisher);
        let entry = layouts.decode(&seen.words)?;
        let buffer = match lease(&entry) {
            Err(Error::Stale { .. } | Error::NoSuchPool { .. }) => return Ok(None),
            leased => leased?,
        };
        layouts.check_fits(&buffer)?;
        Content::of(layouts.make_tensor(buffer), &entry).map(Some)
    }

    /// Reads the directory, and queries new publishers. Forgets a publisher that has ended once all its messages are
    /// observed.
    fn find_publishers(&mut self) -> Result<()> {
        let is_first = self.scanned.replace(Instant::now()).is_none();
        self.observed.retain(|publisher| !publisher.has_ended());
        self.queries.retain(|(query, _)| !query.peer().has_ended());
        let Some(dir) = SocketDir::find(&self.topic.directory())? else { return Ok(()) };
        let entries = dir.endpoints()?;
        self.ignored.retain(|(_, since)| since.elapsed() < OBSERVER_IGNORES);
        let new = entries.iter().filter(|entry| !self.has_contacted(entry.uid));
        let query = |entry| PublisherQuery::send(&dir, entry).map(|it| it.ok()?).transpose();
        // Limited, so that publishers which never answer do not use up the descriptors.
        let new = new.filter_map(query).take(query::AT_ONCE.saturating_sub(self.queries.len()));
        let new = new.map(|query| Ok((query?, is_first))).collect::<Result<Vec<_>>>()?;
        let timeout = if is_first { QUERY_TIMEOUT } else { OBSERVER_CONNECT_TIMEOUT };
        publisher_query::await_reports(new.iter().map(|(query, _)| query), timeout);
        self.queries.extend(new);
        self.read_reports();
        Ok(())
    }

    /// The index of the publisher whose turn it is. There must be one.
    fn next_turn(&mut self) -> usize {
        let at = self.turn % self.observed.len();
        self.turn = at + 1;
        at
    }

    fn has_contacted(&self, uid: u64) -> bool {
        self.observed.iter().any(|publisher| publisher.uid == uid)
            || self.queries.iter().any(|(query, _)| query.uid == uid)
            || self.ignored.iter().any(|(ignored, _)| *ignored == uid)
    }

    /// Adds publishers that have answered. One that is stopped was queried once, and costs nothing more.
    fn read_reports(&mut self) {
        for (query, from_now_on) in std::mem::take(&mut self.queries) {
            let Some(report) = query.report() else {
                self.queries.push((query, from_now_on));
                continue;
            };
            match report.and_then(|report| ObservedPublisher::new(&query, report, from_now_on)) {
                Some(publisher) => self.observed.push(publisher),
                None => self.ignored.push((query.uid, Instant::now())),
            }
        }
    }
}

impl ObservedPublisher {
    /// Checks a report, and maps the ring of the publisher. `None` if the report makes no sense.
    fn new(
        query: &PublisherQuery,
        report: PublisherReport,
        from_now_on: bool,
    ) -> Option<ObservedPublisher> {
        let size = |size| usize::try_from(size).unwrap_or(usize::MAX);
        let shape = RingShape::new(size(report.head.depth), size(report.head.payload))?;
        let words = fd_checks::open_header(&report.ring?, shape.words()).ok()?;
        let ring = MappedRing { words, shape, first: report.head.first };
        let reader = ring.reader();
        let next = if from_now_on { reader.head() } else { reader.oldest(ring.first) };
        let cursor = Cursor::new(Arc::new(ring), next);
        let (uid, peer) = (query.uid, query.peer().clone());
        Some(ObservedPublisher { uid, peer, signature: report.head.signature, cursor })
    }

    /// The newest message, if it is there. Skips those before it.
    fn newest(&mut self) -> Result<Option<Sighting>> {
        let ring = &self.cursor.ring;
        let head = ring.reader().head();
        if head == ring.first {
            return Ok(None);
        }
        let found = self.read(head.wrapping_sub(1))?;
        if found.is_some() {
            self.cursor.next = head;
        }
        Ok(found)
    }

    /// The next message. Gives up after some attempts, because a fast publisher could keep it going.
    fn next(&mut self, missed: &mut u64) -> Result<Option<Sighting>> {
        for _ in 0..SKIPPED_MESSAGES {
            if self.cursor.entry().peek() == Found::NotYet {
                return Ok(None);
            }
            let sequence = self.cursor.next;
            match self.read(sequence) {
                Ok(None) => {
                    let lost = self.cursor.overwritten();
                    self.cursor.advance(lost);
                    *missed = missed.saturating_add(lost);
                }
                found => {
                    self.cursor.advance(1);
                    return found;
                }
            }
        }
        Ok(None)
    }

    /// Message `sequence`, if it is there.
    fn read(&self, sequence: u64) -> Result<Option<Sighting>> {
        let ring = &self.cursor.ring;
        let mut words = vec![0; ring.shape.payload()];
        let Found::Message(len) = ring.reader().entry(sequence).read::<Shipped>(&mut words) else {
            return Ok(None);
        };
        words.truncate(len);
        self.describe(sequence.wrapping_sub(ring.first), words).map(Some)
    }

    fn describe(&self, sequence: u64, words: Vec<u64>) -> Result<Sighting> {
        let mut seen = Sighting {
            publisher: self.uid,
            pid: self.peer.pid,
            sequence,
            carries: self.signature.to_string(),
            nbytes: size_of_val(words.as_slice()),
            dtype: None,
            shape: Vec::new(),
            format: None,
            header: None,
            words,
        };
        if self.signature.is_tensor() {
            seen.decode_tensor()?;
        } else if let Ok(size) = usize::try_from(self.signature.size()) {
            seen.nbytes = seen.nbytes.min(size);
        }
        Ok(seen)
    }

    /// Whether all messages are observed and no more will come.
    fn has_ended(&self) -> bool {
        let ended = self.peer.has_ended() || self.cursor.ring.reader().is_closed();
        ended && self.cursor.entry().peek() == Found::NotYet
    }
}

impl Sighting {
    /// Decodes what the words say about a tensor.
    fn decode_tensor(&mut self) -> Result<()> {
        let mut layouts = LayoutCache::new(self.publisher);
        let entry = layouts.decode(&self.words).map_err(nonsense)?;
        let (dtype, layout, format) = layouts.tensor_info();
        (self.dtype, self.format) = (Some(dtype), format);
        (self.nbytes, self.shape) = (layout.nbytes(), layout.shape().to_vec());
        if entry.kind != Tensor::KIND {
            let mut words = Words::of(entry.meta);
            self.header = Some(Header::read(&mut words).map_err(nonsense)?);
            if entry.kind == PointCloud::KIND {
                self.count_points_only(words.next().map_err(nonsense)?)?;
            }
        }
        Ok(())
    }

    /// A point cloud may have room for more points than it has.
    fn count_points_only(&mut self, points: u64) -> Result<()> {
        let too_many = Error::BadMessage { what: "too many points" };
        let (Some(rows), Ok(points)) = (self.shape.first_mut(), usize::try_from(points)) else {
            return Err(too_many);
        };
        if points > *rows {
            return Err(too_many);
        }
        self.nbytes = self.nbytes / (*rows).max(1) * points;
        *rows = points;
        Ok(())
    }
}

impl Content {
    fn of(tensor: Tensor, entry: &TensorEntry<'_>) -> Result<Content> {
        let words = Words::of(entry.meta);
        Ok(match entry.kind {
            Image::KIND => Content::Image(Image::from_parts(tensor, words)?),
            PointCloud::KIND => Content::Cloud(PointCloud::from_parts(tensor, words)?),
            DepthImage::KIND => Content::Depth(DepthImage::from_parts(tensor, words)?),
            _ => Content::Tensor(tensor),
        })
    }

    /// Copies the message to the heap of this process and ends the lease, so that the publisher can reuse the slot.
    /// [`copies`](crate::copies) counts it.
    pub fn copied_out(self) -> Result<Content> {
        Ok(match self {
            Content::Plain(bytes) => Content::Plain(bytes),
            Content::Tensor(tensor) => Content::Tensor(copied_out(&tensor)?),
            Content::Image(image) => Content::Image(copied_out(&image)?),
            Content::Cloud(cloud) => Content::Cloud(copied_out(&cloud)?),
            Content::Depth(depth) => Content::Depth(copied_out(&depth)?),
        })
    }

    /// The tensor of the message. `None` for plain data.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Content::Plain(_) => None,
            Content::Tensor(tensor) => Some(tensor),
            Content::Image(image) => Some(image.tensor()),
            Content::Cloud(cloud) => Some(cloud.tensor()),
            Content::Depth(depth) => Some(depth.tensor()),
        }
    }
}

impl fmt::Display for Sighting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.carries, self.sequence)?;
        match self.dtype {
            Some(dtype) => write!(f, " {dtype} {:?}", self.shape),
            None => write!(f, " {} bytes", self.nbytes),
        }
    }
}

/// Makes any error about a message a `BadMessage`: the publisher is at fault, and not the caller.
fn nonsense(error: Error) -> Error {
    match error {
        Error::BadMessage { .. } => error,
        _ => Error::BadMessage { what: "a tensor that cannot be" },
    }
}

fn copied_out<T: Domain>(what: &T) -> Result<T> {
    what.over(what.tensor().to_memory(TensorMemory::Mem)?)
}

/// Leases a slot by its serial. Waits a moment for a segment that is on its way.
fn lease(entry: &TensorEntry<'_>) -> Result<Handle> {
    let known = registry::find_or_attach(entry.pool)?;
    let start = Instant::now();
    loop {
        // Read first: the last segments of the owner may arrive while this looks for them.
        let alive = known.is_alive();
        match registry::lease(&known, entry.slot, entry.serial, false, || true) {
            Err(Error::NoSuchSegment { .. })
                if start.elapsed() < OBSERVER_SEGMENT_TIMEOUT && alive =>
            {
                thread::sleep(UNRESOLVED_POLL);
            }
            done => return done,
        }
    }
}
