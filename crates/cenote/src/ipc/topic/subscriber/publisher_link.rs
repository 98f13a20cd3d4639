//! One publisher, for a subscriber: its ring, and the subscriber's cursor in it.

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ipc::discovery::handshake::Answer;
use crate::ipc::pool::reader::attachment::Attachment;
use crate::ipc::pool::registry::RegisteredPool;
use crate::ipc::ring::cursor::{Cursor, MappedRing};
use crate::ipc::ring::layout_cache::LayoutCache;
use crate::ipc::ring::orderings::Shipped;
use crate::ipc::ring::ring::Found;
use crate::ipc::ring::subscriber_row;
use crate::ipc::ring::subscriber_row::SubscriberRow;
use crate::ipc::shared::fd_checks;
use crate::ipc::shared::wire::{Kind, Packet};
use crate::ipc::shared::words::Words;
use crate::ipc::topic::handshake;
use crate::ipc::topic::handshake::Subscribed;
use crate::ipc::topic::notify::SubscriberNotify;
use crate::ipc::topic::publisher::publisher::Publisher;
use crate::ipc::topic::subscriber::disconnect::DisconnectFlag;
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::packet;
use crate::sys::socket::peer::Peer;

/// How many packets of one connection are read in one go. A well-behaved publisher sends at most one for each
/// sleep.
const PACKETS_AT_ONCE: usize = 16;

/// A publisher that a subscriber receives from.
#[derive(Debug)]
pub(crate) struct PublisherLink {
    pub(crate) origin: Origin,
    pub(crate) cursor: Cursor,
    pub(crate) layouts: LayoutCache,
    /// How many messages were passed: taken or missed.
    taken: u64,
    /// The next message was there when the subscriber last looked, but its tensor could not be leased yet.
    pub(crate) pending: bool,
}

/// Which publisher it is.
#[derive(Debug)]
pub(crate) enum Origin {
    /// The publisher of the same [`Topic`](crate::Topic) object.
    Own(Arc<Publisher>),
    /// A publisher at the other end of a connection.
    Connected(ConnectedPublisher),
}

/// A publisher of another object, most often in another process.
#[derive(Debug)]
pub(crate) struct ConnectedPublisher {
    /// The uid of the publisher and of its pool.
    pub(crate) uid: u64,
    pub(crate) peer: Peer,
    pub(crate) connection: Arc<GuardedSocket>,
    pub(crate) disconnected: Arc<DisconnectFlag>,
    /// The pool of the publisher, if its messages have tensors.
    pub(crate) pool: Option<RegisteredPool>,
    /// The same pool, if the process of the publisher owns it. Then an unchanged ring entry validates a lease as well as a
    /// serial does.
    pub(crate) own_pool: Option<Arc<Attachment>>,
    /// The row that this subscriber writes.
    row: Words,
    /// Whether the publisher waits for its subscribers.
    waits: bool,
}

/// What the subscriber finds at the cursor of a link.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextMessage {
    /// It was copied; it has this many words.
    Message(usize),
    NotYet,
    /// There is none, and no more will come.
    End,
    /// This many messages were overwritten. The cursor is behind them now.
    Missed(u64),
}

impl PublisherLink {
    /// The publisher of the same object, from its first message on.
    pub(crate) fn own(publisher: Arc<Publisher>) -> PublisherLink {
        let ring = publisher.ring().clone();
        let cursor = Cursor::new(ring.clone(), ring.first);
        let layouts = LayoutCache::new(publisher.pool.uid());
        PublisherLink { origin: Origin::Own(publisher), cursor, layouts, taken: 0, pending: false }
    }

    /// A publisher that has answered the handshake. Checks its answer, and maps its ring.
    pub(crate) fn connected(
        uid: u64,
        pool: Option<RegisteredPool>,
        answer: Answer,
        notify: &Arc<SubscriberNotify>,
    ) -> Result<PublisherLink> {
        let bad = |what| Error::BadMessage { what };
        let subscribed: Subscribed = handshake::read(&answer.bytes)?;
        let shape = subscribed.shape()?;
        let Ok([ring, row]) = <[_; 2]>::try_from(answer.fds) else {
            return Err(bad("a publisher's answer does not add up"));
        };
        if subscribed.uid != uid {
            return Err(bad("a publisher of another name"));
        }
        let publisher = ConnectedPublisher {
            uid,
            disconnected: DisconnectFlag::watch(&answer.peer, &answer.connection, notify)?,
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
        let origin = Origin::Connected(publisher);
        Ok(PublisherLink {
            origin,
            cursor,
            layouts: LayoutCache::new(uid),
            taken: 0,
            pending: false,
        })
    }

    pub(crate) fn is_own(&self) -> bool {
        matches!(self.origin, Origin::Own(_))
    }

    /// The publisher at the other end of a connection, if it is one.
    pub(crate) fn connected_publisher(&self) -> Option<&ConnectedPublisher> {
        match &self.origin {
            Origin::Own(_) => None,
            Origin::Connected(publisher) => Some(publisher),
        }
    }

    /// The most words of a message.
    #[inline]
    pub(crate) fn payload(&self) -> usize {
        self.cursor.ring.shape.payload()
    }

    /// Copies the next message into `words`. The cursor stays at it, unless messages were overwritten.
    pub(crate) fn read_next(&mut self, words: &mut [u64]) -> NextMessage {
        match self.cursor.entry().read::<Shipped>(words) {
            Found::Message(len) => NextMessage::Message(len),
            Found::NotYet if self.has_ended() => NextMessage::End,
            Found::NotYet => NextMessage::NotYet,
            Found::Overwritten => {
                let lost = self.cursor.overwritten();
                self.advance(lost);
                NextMessage::Missed(lost)
            }
        }
    }

    /// Whether the subscriber has something to do: a message that it can try to take, or the end of the publisher.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        if self.pending {
            return false;
        }
        self.cursor.entry().peek() != Found::NotYet || self.has_ended()
    }

    /// Skips all messages except the newest.
    pub(crate) fn skip_to_newest(&mut self) {
        let older = self.cursor.older_than_newest();
        if older > 0 {
            self.advance(older);
        }
    }

    /// Moves on by `count` messages, and reports that to the publisher.
    #[inline(always)]
    pub(crate) fn advance(&mut self, count: u64) {
        self.cursor.advance(count);
        self.taken = self.taken.wrapping_add(count);
        match &self.origin {
            Origin::Own(publisher) if publisher.waits() => publisher.set_own_taken(self.taken),
            Origin::Own(_) => {}
            Origin::Connected(publisher) => publisher.report_taken(&self.cursor.ring, self.taken),
        }
    }

    /// Whether all messages are taken and no more will come. It looks for a message after it has seen the end: whatever
    /// was sent before the end is visible then.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        let Origin::Connected(publisher) = &self.origin else { return false };
        let ended = publisher.disconnected.is_set() || self.cursor.ring.reader().is_closed();
        ended && self.cursor.entry().peek() == Found::NotYet
    }

    /// Whether the publisher has disconnected. The link ends when all messages are taken.
    #[inline]
    pub(crate) fn is_disconnected(&self) -> bool {
        self.connected_publisher().is_some_and(|publisher| publisher.disconnected.is_set())
    }
}

impl ConnectedPublisher {
    /// The row in which this subscriber writes to the publisher.
    #[inline]
    pub(crate) fn row(&self) -> SubscriberRow<'_> {
        SubscriberRow::new(self.row.get())
    }

    /// Reports how many messages were taken, and wakes a publisher that waits for that: T1 to T3 of
    /// `ipc/ring/subscriber_row.rs`.
    #[inline(always)]
    fn report_taken(&self, ring: &MappedRing, taken: u64) {
        self.row().set_taken::<Shipped>(taken, self.waits);
        if self.waits && ring.reader().publisher_waits() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let wake = Packet::new(Kind::Wake);
        let _ = packet::send(self.connection.as_fd(), bytemuck::bytes_of(&wake), &[]);
    }

    /// Reads one packet that woke this process; returns whether there was one.
    pub(crate) fn drain_one(&self) -> bool {
        // A packet that is too long makes no sense, and is discarded.
        packet::recv(self.connection.as_fd(), &mut [0; 8]).is_ok_and(|(len, _)| len > 0)
    }

    /// Reads the packets that woke this process.
    pub(crate) fn drain(&self) {
        let _ = (0..PACKETS_AT_ONCE).all(|_| self.drain_one());
    }
}
