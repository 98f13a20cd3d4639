//! What the lock of a publisher protects: the queue, and the subscribers.

use std::any::Any;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::ipc::ring::cursor::MappedRing;
use crate::ipc::ring::subscriber_row::SubscriberRow;
use crate::ipc::shared::words::Words;
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::packet;
use crate::tensor::buffer::handle::Handle;

/// The part of a publisher that changes with every message.
#[derive(Debug)]
pub(crate) struct PublisherState {
    /// The sequence of the next message.
    pub(crate) next: u64,
    /// The buffers of the messages in the ring, by [entry](crate::ipc::ring::ring::RingShape::index). They keep a
    /// slot from being reused while its message is queued.
    pub(crate) held: Box<[Option<Handle>]>,
    /// A message is encoded here, and then copied into the ring.
    pub(crate) words: Box<[u64]>,
    pub(crate) subscribers: Vec<SubscriberRecord>,
    /// How many threads wait for subscribers to advance.
    pub(crate) waiters: usize,
    /// How many messages the subscriber of the same [`Topic`](crate::Topic) object has passed. `None` if it does not
    /// subscribe, or if this publisher never waits.
    pub(crate) own_taken: Option<u64>,
    /// The closed publisher itself, while subscribers have messages to take.
    pub(crate) keep_alive: Option<Arc<dyn Any + Send + Sync>>,
}

/// A subscription, for its publisher.
#[derive(Debug)]
pub(crate) struct SubscriberRecord {
    /// The number of the connection.
    pub(crate) number: u64,
    pub(crate) pid: i32,
    /// The name of the program, once an inspection needed it.
    pub(crate) program: Option<String>,
    pub(crate) connection: Arc<GuardedSocket>,
    pub(crate) row: Words,
    /// The sequence of its first message.
    pub(crate) start: u64,
    /// The number of the last sleep that it was woken from.
    pub(crate) woken: u64,
}

impl SubscriberRecord {
    /// The sequence of the message that it takes next. The row is input: its count is limited to what was sent.
    pub(crate) fn cursor(&self, next: u64) -> u64 {
        let taken = SubscriberRow::new(self.row.get()).taken();
        self.start.wrapping_add(taken.min(next.wrapping_sub(self.start)))
    }

    /// Sends a byte if it sleeps and was not woken yet. If the socket is full, it has unread bytes already.
    pub(crate) fn wake(&mut self) {
        if SubscriberRow::new(self.row.get()).needs_wake(&mut self.woken) {
            let _ = packet::send(self.connection.as_fd(), &[0], &[]);
        }
    }
}

/// A subscriber that has not taken a message yet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SlowSubscriber<'a> {
    /// The subscriber of the same [`Topic`](crate::Topic) object.
    Own,
    Connected(&'a SubscriberRecord),
}

impl PublisherState {
    /// A subscriber that has not taken the message which was sent `back` messages ago.
    pub(crate) fn behind(&self, ring: &MappedRing, back: u64) -> Option<SlowSubscriber<'_>> {
        let needs = |cursor: u64| self.next.wrapping_sub(cursor) >= back;
        let own = self.own_taken.map(|taken| ring.first.wrapping_add(taken));
        if own.is_some_and(needs) {
            return Some(SlowSubscriber::Own);
        }
        let slow = self.subscribers.iter().find(|one| needs(one.cursor(self.next)));
        slow.map(SlowSubscriber::Connected)
    }

    /// A subscriber that has not taken the message which the next one overwrites.
    pub(crate) fn slowest(&self, ring: &MappedRing) -> Option<SlowSubscriber<'_>> {
        self.behind(ring, ring.shape.depth)
    }

    /// The sequence of the oldest message in the ring whose buffer passes the test.
    pub(crate) fn oldest_held(
        &self,
        ring: &MappedRing,
        test: impl Fn(&Handle) -> bool,
    ) -> Option<u64> {
        let kept = self.next.wrapping_sub(ring.first).min(ring.shape.depth);
        let mut oldest_first = (1..=kept).rev().map(|back| self.next.wrapping_sub(back));
        oldest_first
            .find(|sequence| self.held[ring.shape.index(*sequence)].as_ref().is_some_and(&test))
    }
}
