//! One publisher, as a subscriber sees it: its ring, and how far it has been read.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::ipc::discovery::handshake::Answer;
use crate::ipc::pool::reader::attachment::Attachment;
use crate::ipc::pool::registry::RegisteredPool;
use crate::ipc::ring::cursor::{Cursor, MappedRing};
use crate::ipc::ring::layout_cache::LayoutCache;
use crate::ipc::ring::orderings::Shipped;
use crate::ipc::ring::ring::{Found, RingReader};
use crate::ipc::ring::subscriber_row;
use crate::ipc::ring::subscriber_row::SubscriberRow;
use crate::ipc::service_thread;
use crate::ipc::service_thread::{Served, Watch};
use crate::ipc::shared::fd_checks;
use crate::ipc::shared::wire::{Kind, Packet};
use crate::ipc::shared::words::Words;
use crate::ipc::topic::handshake;
use crate::ipc::topic::handshake::Subscribed;
use crate::ipc::topic::publisher::Publisher;
use crate::ipc::topic::subscriber::wakeup::News;
use crate::sync::{AtomicBool, Ordering};
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::packet;
use crate::sys::socket::peer::Peer;

/// How many packets are read before others have their turn. There are more only if somebody never
/// stops sending them.
const AT_ONCE: usize = 16;

/// Where messages come from.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) from: From,
    pub(crate) cursor: Cursor,
    /// What its tensors are like.
    pub(crate) layouts: LayoutCache,
    /// How many were passed, taken or missed.
    passed: u64,
    /// The next message is there, but its tensor could not be had yet when last looked at.
    pub(crate) stuck: bool,
}

/// Whose ring it is.
#[derive(Debug)]
pub(crate) enum From {
    /// That of the same object.
    Own(Arc<Publisher>),
    /// Somebody else's.
    Other(Other),
}

/// Another publisher's ring, mapped read-only, and the row that this subscriber writes for it.
#[derive(Debug)]
pub(crate) struct Other {
    /// Of the publisher, and of its pool.
    pub(crate) uid: u64,
    pub(crate) peer: Peer,
    pub(crate) connection: Arc<GuardedSocket>,
    pub(crate) gone: Arc<Gone>,
    /// The pool of the publisher, if its messages are tensors.
    pub(crate) pool: Option<RegisteredPool>,
    /// The same, if it belongs to that very process, so that an entry of the ring is as good as a serial.
    pub(crate) own_pool: Option<Arc<Attachment>>,
    row: Words,
    /// It waits for its subscribers.
    waits: bool,
}

/// What was found of the next message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is in the words, this many.
    Message(usize),
    Nothing,
    /// Nothing, and nothing more will come.
    End,
    /// So many were overwritten before they were taken. There may be another behind them.
    Missed(u64),
}

impl Source {
    /// What the same object sends, from the beginning.
    pub(crate) fn own(publisher: Arc<Publisher>) -> Source {
        let ring = publisher.ring().clone();
        let cursor = Cursor::new(ring.clone(), ring.first);
        let layouts = LayoutCache::new(publisher.pool.uid());
        Source { from: From::Own(publisher), cursor, layouts, passed: 0, stuck: false }
    }

    /// A publisher that has answered. Everything it says is checked.
    pub(crate) fn other(
        uid: u64,
        pool: Option<RegisteredPool>,
        answer: Answer,
        news: &Arc<News>,
    ) -> Result<Source> {
        let bad = |what| Error::BadMessage { what };
        let subscribed: Subscribed = handshake::read(&answer.bytes)?;
        let shape = subscribed.shape()?;
        let Ok([ring, row]) = <[_; 2]>::try_from(answer.fds) else {
            return Err(bad("a publisher's answer does not add up"));
        };
        if subscribed.uid != uid {
            return Err(bad("a publisher of another name"));
        }
        let other = Other {
            uid,
            gone: Gone::watch(&answer.peer, &answer.connection, news)?,
            connection: answer.connection,
            row: fd_checks::open_row(row, subscriber_row::WORDS)?,
            waits: subscribed.waits != 0,
            own_pool: pool.as_ref().and_then(|pool| pool.attached_of(&answer.peer)).cloned(),
            pool,
            peer: answer.peer,
        };
        let words = fd_checks::open_header(&ring, shape.words())?;
        let ring = MappedRing { words, shape, first: subscribed.first };
        let cursor = Cursor::new(Arc::new(ring), subscribed.start);
        let from = From::Other(other);
        Ok(Source { from, cursor, layouts: LayoutCache::new(uid), passed: 0, stuck: false })
    }

    pub(crate) fn is_own(&self) -> bool {
        matches!(self.from, From::Own(_))
    }

    /// Tells when its publisher is gone, if that is somebody else.
    pub(crate) fn gone(&self) -> Option<Arc<Gone>> {
        match &self.from {
            From::Own(_) => None,
            From::Other(other) => Some(other.gone.clone()),
        }
    }

    #[inline]
    pub(crate) fn reader(&self) -> RingReader<'_> {
        self.cursor.ring.reader()
    }

    /// The most words of a message.
    #[inline]
    pub(crate) fn payload(&self) -> usize {
        self.cursor.ring.shape.payload()
    }

    /// Looks for the next message. It is not taken yet.
    pub(crate) fn next(&mut self, words: &mut [u64]) -> Next {
        match self.cursor.entry().read::<Shipped>(words) {
            Found::Message(len) => Next::Message(len),
            Found::NotYet if self.has_ended() => Next::End,
            Found::NotYet => Next::Nothing,
            Found::Overwritten => Next::Missed(self.catch_up()),
        }
    }

    /// Whether there is something to take, or to be told.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        if self.stuck {
            return false;
        }
        self.cursor.entry().peek() != Found::NotYet || self.has_ended()
    }

    /// Goes on to the oldest message that may still be there; tells how many are lost.
    fn catch_up(&mut self) -> u64 {
        let lost = self.cursor.overwritten();
        self.advance(lost);
        lost
    }

    /// Skips all but the newest message.
    pub(crate) fn skip_to_newest(&mut self) {
        let older = self.cursor.older_than_newest();
        if older > 0 {
            self.advance(older);
        }
    }

    /// Passes `count` messages.
    #[inline(always)]
    pub(crate) fn advance(&mut self, count: u64) {
        self.cursor.advance(count);
        self.passed = self.passed.wrapping_add(count);
        match &self.from {
            From::Own(publisher) if publisher.waits() => publisher.set_own_taken(self.passed),
            From::Own(_) => {}
            From::Other(other) => other.tell(&self.cursor.ring, self.passed),
        }
    }

    /// Whether nothing will come that is not there yet. Whatever came before that was said can be
    /// seen, so look once more.
    #[inline]
    fn has_ended(&self) -> bool {
        let From::Other(other) = &self.from else { return false };
        let ended = other.gone.is_true() || self.reader().is_closed();
        ended && self.cursor.entry().peek() == Found::NotYet
    }

    /// Whether there is nothing to take, and never will be.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended()
    }

    /// Whether its publisher is gone: when all is taken, so is this.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        matches!(&self.from, From::Other(other) if other.gone.is_true())
    }
}

impl Other {
    /// What this subscriber tells the publisher.
    #[inline]
    pub(crate) fn row(&self) -> SubscriberRow<'_> {
        SubscriberRow::new(self.row.get())
    }

    /// Publishes how far this subscriber has come, and wakes a publisher that waits for that.
    #[inline(always)]
    fn tell(&self, ring: &MappedRing, passed: u64) {
        self.row().set_taken::<Shipped>(passed, self.waits);
        if self.waits && ring.reader().publisher_waits() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let wake = Packet::new(Kind::Wake);
        let _ = packet::send(self.connection.as_fd(), bytemuck::bytes_of(&wake), &[]);
    }

    /// Reads all the packets that woke us.
    pub(crate) fn hush_all(&self) {
        let _ = (0..AT_ONCE).all(|_| hush(&self.connection));
    }
}

/// Reads a packet of a publisher that woke us; tells whether there was one. Most often it is the only one.
pub(crate) fn hush(connection: &GuardedSocket) -> bool {
    // One that is too long makes no sense, and is gone.
    packet::recv(connection.as_fd(), &mut [0; 8]).is_ok_and(|(len, _)| len > 0)
}

/// Whether a publisher is gone. What is in its ring can still be taken.
#[derive(Debug)]
pub(crate) struct Gone {
    gone: AtomicBool,
    news: Arc<News>,
    watches: Mutex<Vec<Watch>>,
}

impl Gone {
    /// Watches for the end of a connection, or of the process at its other end.
    fn watch(peer: &Peer, connection: &Arc<GuardedSocket>, news: &Arc<News>) -> Result<Arc<Gone>> {
        let error = |source| Error::os("watching a socket", source);
        let gone = Arc::new(Gone {
            gone: AtomicBool::new(false),
            news: news.clone(),
            watches: Mutex::default(),
        });
        let served: Weak<dyn Served> = Arc::downgrade(&(gone.clone() as Arc<dyn Served>));
        let mut watches = Vec::new();
        if let Some(pidfd) = &peer.pidfd {
            watches.push(service_thread::watch(pidfd, served.clone(), 0).map_err(error)?);
        }
        watches.push(service_thread::watch_end(connection, served, 0).map_err(error)?);
        *gone.watches() = watches;
        Ok(gone)
    }

    fn watches(&self) -> std::sync::MutexGuard<'_, Vec<Watch>> {
        // Nothing under this lock panics.
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn is_true(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl Served for Gone {
    fn ready(self: Arc<Self>, _token: u64) {
        self.gone.store(true, Ordering::Release);
        let watches = std::mem::take(&mut *self.watches());
        drop(watches);
        self.news.tell();
    }
}
