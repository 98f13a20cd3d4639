//! Looking at a topic without taking part.
//!
//! A publisher that is asked who subscribes also shows its ring (`listing.rs`). An observer maps it
//! read-only, and that is all: it has no row, so nobody waits for it, wakes it or counts it. It sees what
//! the ring says of a message without leasing it. Only [`Observer::content`] attaches to the pool and takes
//! a lease, as anybody who has a descriptor may.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::domain::Domain;
use crate::domain::cloud::PointCloud;
use crate::domain::depth::DepthImage;
use crate::domain::image::Image;
use crate::error::{Error, Result};
use crate::intervals::{
    OBSERVER_CONNECT_TIMEOUT, OBSERVER_IGNORES, OBSERVER_POLL, OBSERVER_SEGMENT_TIMEOUT,
    QUERY_TIMEOUT, SKIPPED_MESSAGES,
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
use crate::ipc::topic::inspect::listing;
use crate::ipc::topic::inspect::listing::{Asked, Told};
use crate::ipc::topic::name::TopicName;
use crate::ipc::topic::signature::Signature;
use crate::memory::kind::TensorMemory;
use crate::sys::socket::peer::Peer;
use crate::tensor::Tensor;
use crate::tensor::buffer::handle::Handle;
use crate::types::dtype::DType;
use crate::types::metadata::Words;
use crate::types::metadata::header::Header;
use crate::types::pixel_format::PixelFormat;

/// Looks at what is sent under a name, and is not seen: no publisher waits for it or sends it anything,
/// whatever its policy.
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
    watched: Vec<Watched>,
    /// Whose turn it is.
    turn: usize,
    /// Those who were asked and have not answered, and whether they were there from the first.
    asked: Vec<(Asked, bool)>,
    /// Those whose answer made no sense, and when they gave it. They may make sense later: one that is
    /// short of descriptors hangs up.
    strangers: Vec<(u64, Instant)>,
    /// When the directory was last looked at.
    looked: Option<Instant>,
    missed: u64,
}

/// One publisher.
#[derive(Debug)]
struct Watched {
    uid: u64,
    peer: Peer,
    signature: Signature,
    cursor: Cursor,
}

/// What the ring says of a message. Its tensor may be gone by now.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sighting {
    /// The publisher, by the number that it and its pool are known by.
    pub publisher: u64,
    /// The publisher's process id; 0 if it cannot be seen from here.
    pub pid: i32,
    /// How many messages the publisher had sent before.
    pub sequence: u64,
    /// The type of the message.
    pub carries: String,
    /// The bytes of the tensor, or of the plain data; of a cloud, those of its points.
    pub nbytes: usize,
    /// What the elements of the tensor are.
    pub dtype: Option<DType>,
    /// The shape of the tensor; of plain data, empty. A cloud has as many rows as points, though its tensor
    /// may have room for more.
    pub shape: Vec<usize>,
    /// The pixel format of the tensor.
    pub format: Option<PixelFormat>,
    /// Where and when it was recorded, if the message says so.
    pub header: Option<Header>,
    /// The message as it is in the ring.
    words: Vec<u64>,
}

/// A message that an [`Observer`] took a lease on, for as long as this is there.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "one at a time, for a person to look at")]
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
    /// Begins to look at a topic, of which there need not be anything yet.
    pub fn new(topic: &str) -> Result<Observer> {
        let mut observer = Observer {
            topic: TopicName::new(topic)?,
            watched: Vec::new(),
            turn: 0,
            asked: Vec::new(),
            strangers: Vec::new(),
            looked: None,
            missed: 0,
        };
        observer.find_publishers()?;
        Ok(observer)
    }

    /// How many publishers are looked at.
    pub fn publishers(&self) -> usize {
        self.watched.len()
    }

    /// How many messages were gone before they were looked at.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The next message, if there is one: of those that were sent since the observer was made, and of
    /// publishers that came later all that are there. Publishers take turns. Never waits for messages.
    ///
    /// One that makes no sense is an [`Error::BadMessage`], and is passed.
    pub fn look(&mut self) -> Result<Option<Sighting>> {
        if self.looked.is_none_or(|looked| looked.elapsed() >= OBSERVER_POLL) {
            self.find_publishers()?;
        }
        for _ in 0..self.watched.len() {
            let at = self.next_turn();
            let found = self.watched[at].next(&mut self.missed);
            if !matches!(found, Ok(None)) {
                return found;
            }
        }
        Ok(None)
    }

    /// The newest message of some publisher, whether or not it was seen before. Publishers take turns. What
    /// that publisher sent earlier is passed over: [`look`](Observer::look) goes on behind it.
    pub fn newest(&mut self) -> Result<Option<Sighting>> {
        self.find_publishers()?;
        let mut wrong = Ok(None);
        for _ in 0..self.watched.len() {
            let at = self.next_turn();
            match self.watched[at].newest() {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                // Others may make sense.
                Err(error) => wrong = Err(error),
            }
        }
        wrong
    }

    /// What was seen, with its bytes: takes a lease. `None` if it is gone.
    pub fn content(&self, seen: &Sighting) -> Result<Option<Content>> {
        if seen.dtype.is_none() {
            let bytes: &[u8] = bytemuck::cast_slice(&seen.words);
            let bytes = bytes.get(..seen.nbytes).unwrap_or(bytes);
            return Ok(Some(Content::Plain(bytes.to_vec())));
        }
        let mut layouts = LayoutCache::new(seen.publisher);
        let packed = layouts.decode(&seen.words)?;
        let buffer = match lease(&packed) {
            Err(Error::Stale { .. } | Error::NoSuchPool { .. }) => return Ok(None),
            leased => leased?,
        };
        layouts.check_fits(&buffer)?;
        Content::of(layouts.make_tensor(buffer), &packed).map(Some)
    }

    /// Looks who came, and forgets who went without leaving anything unseen.
    fn find_publishers(&mut self) -> Result<()> {
        let first_look = self.looked.replace(Instant::now()).is_none();
        self.watched.retain(|watched| !watched.has_ended());
        self.asked.retain(|(asked, _)| !asked.peer().has_ended());
        let Some(place) = SocketDir::find(&self.topic.directory())? else { return Ok(()) };
        let entries = place.endpoints()?;
        self.strangers.retain(|(_, met)| met.elapsed() < OBSERVER_IGNORES);
        let new = entries.iter().filter(|entry| !self.knows(entry.uid));
        let new =
            new.filter_map(|entry| listing::ask(&place, entry).map(|it| it.ok()?).transpose());
        // However many there are that do not answer, they take so many descriptors and no more.
        let new = new.take(query::AT_ONCE.saturating_sub(self.asked.len()));
        let new = new.map(|asked| Ok((asked?, first_look))).collect::<Result<Vec<_>>>()?;
        let patience = if first_look { QUERY_TIMEOUT } else { OBSERVER_CONNECT_TIMEOUT };
        listing::await_replies(new.iter().map(|(asked, _)| asked), patience);
        self.asked.extend(new);
        self.hear();
        Ok(())
    }

    /// Whose turn it is, of at least one.
    fn next_turn(&mut self) -> usize {
        let at = self.turn % self.watched.len();
        self.turn = at + 1;
        at
    }

    fn knows(&self, uid: u64) -> bool {
        self.watched.iter().any(|watched| watched.uid == uid)
            || self.asked.iter().any(|(asked, _)| asked.uid == uid)
            || self.strangers.iter().any(|(stranger, _)| *stranger == uid)
    }

    /// Takes in those who have answered. Whoever is stopped was asked once, and costs nothing more.
    fn hear(&mut self) {
        for (asked, from_now_on) in std::mem::take(&mut self.asked) {
            match asked.told() {
                None => self.asked.push((asked, from_now_on)),
                Some(told) => {
                    match told.and_then(|told| Watched::meet(&asked, told, from_now_on)) {
                        Some(watched) => self.watched.push(watched),
                        None => self.strangers.push((asked.uid, Instant::now())),
                    }
                }
            }
        }
    }
}

impl Watched {
    /// Maps the ring of a publisher. What it says is checked; one that says nonsense is not there.
    fn meet(asked: &Asked, told: Told, from_now_on: bool) -> Option<Watched> {
        let size = |size| usize::try_from(size).unwrap_or(usize::MAX);
        let shape = RingShape::new(size(told.head.depth), size(told.head.payload))?;
        let words = fd_checks::open_header(&told.ring?, shape.words()).ok()?;
        let ring = MappedRing { words, shape, first: told.head.first };
        let reader = ring.reader();
        let next = if from_now_on { reader.head() } else { reader.oldest(ring.first) };
        let cursor = Cursor::new(Arc::new(ring), next);
        let (uid, peer) = (asked.uid, asked.peer().clone());
        Some(Watched { uid, peer, signature: told.head.signature, cursor })
    }

    /// The newest message, if it is there; those before it are passed over.
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

    /// The next message. A publisher that is quicker than this does not keep it for ever.
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
        self.sight(sequence.wrapping_sub(ring.first), words).map(Some)
    }

    fn sight(&self, sequence: u64, words: Vec<u64>) -> Result<Sighting> {
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
            seen.unpack()?;
        } else if let Ok(size) = usize::try_from(self.signature.size()) {
            seen.nbytes = seen.nbytes.min(size);
        }
        Ok(seen)
    }

    /// Whether nothing will come that is not there yet.
    fn has_ended(&self) -> bool {
        let ended = self.peer.has_ended() || self.cursor.ring.reader().is_closed();
        ended && self.cursor.entry().peek() == Found::NotYet
    }
}

impl Sighting {
    /// Reads what the words say of a tensor.
    fn unpack(&mut self) -> Result<()> {
        let mut layouts = LayoutCache::new(self.publisher);
        let packed = layouts.decode(&self.words).map_err(nonsense)?;
        let (dtype, layout, format) = layouts.tensor_info();
        (self.dtype, self.format) = (Some(dtype), format);
        (self.nbytes, self.shape) = (layout.nbytes(), layout.shape().to_vec());
        if packed.kind != Tensor::KIND {
            let mut words = Words::of(packed.meta);
            self.header = Some(Header::read(&mut words).map_err(nonsense)?);
            if packed.kind == PointCloud::KIND {
                self.leave_room_out(words.next().map_err(nonsense)?)?;
            }
        }
        Ok(())
    }

    /// A cloud may have room for more points than there are, with anything in it.
    fn leave_room_out(&mut self, points: u64) -> Result<()> {
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
    fn of(tensor: Tensor, packed: &TensorEntry<'_>) -> Result<Content> {
        let words = Words::of(packed.meta);
        Ok(match packed.kind {
            Image::KIND => Content::Image(Image::from_parts(tensor, words)?),
            PointCloud::KIND => Content::Cloud(PointCloud::from_parts(tensor, words)?),
            DepthImage::KIND => Content::Depth(DepthImage::from_parts(tensor, words)?),
            _ => Content::Tensor(tensor),
        })
    }

    /// The same on this process's own heap: the lease ends, and whoever sent it can have the memory back.
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

    /// The tensor that has the bytes, if it is not plain data.
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

/// Whatever is wrong with a message, nobody here did it.
fn nonsense(error: Error) -> Error {
    match error {
        Error::BadMessage { .. } => error,
        _ => Error::BadMessage { what: "a tensor that cannot be" },
    }
}

fn copied_out<T: Domain>(what: &T) -> Result<T> {
    what.over(what.tensor().to_memory(TensorMemory::Mem)?)
}

/// A lease by serial, whoever owns the pool. A segment may still be on its way.
fn lease(packed: &TensorEntry<'_>) -> Result<Handle> {
    let known = registry::find_or_attach(packed.pool)?;
    let start = Instant::now();
    loop {
        // Asked first: what its owner sent last may come in while this looks for it.
        let alive = known.is_alive();
        match registry::lease(&known, packed.slot, packed.serial, false, || true) {
            Err(Error::NoSuchSegment { .. })
                if start.elapsed() < OBSERVER_SEGMENT_TIMEOUT && alive =>
            {
                thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}
