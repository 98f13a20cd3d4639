//! The row of a subscription: the words that a subscriber writes and its publisher reads.
//!
//! Either side may sleep until the other has done something. It must not miss the event that ends its sleep:
//!
//! ```text
//!   the side that will sleep               the side that has news
//!   S1  set ARMED, or WAITING              T1  publish a message, or advance TAKEN
//!   S2  SeqCst fence                       T2  SeqCst fence
//!   S3  look once more, then sleep         T3  read ARMED, or WAITING; if set, wake the sleeper
//! ```
//!
//! | who sleeps | S1, S2 | T1, T2 | T3 |
//! |---|---|---|---|
//! | subscriber, until a message comes | [`arm`] | [`RingWriter::publish`] | [`SubscriberRow::needs_wake`] |
//! | publisher, until a subscriber advances | [`RingWriter::wait`] | [`SubscriberRow::set_taken`] | [`RingReader::publisher_waits`] |
//!
//! The two SeqCst fences have one total order. So at least one of S3 and T3 sees what the other side wrote before its
//! fence. A wake-up is one byte on the connection.
//!
//! [`RingWriter::publish`]: crate::ipc::ring::ring::RingWriter::publish
//! [`RingWriter::wait`]: crate::ipc::ring::ring::RingWriter::wait
//! [`RingReader::publisher_waits`]: crate::ipc::ring::ring::RingReader::publisher_waits

use crate::ipc::ring::orderings::Orderings;
use crate::sync::{AtomicU64, Ordering, fence};

/// Non-zero: the subscriber sleeps, or is about to. Each sleep has another number.
const ARMED: usize = 0;
/// How many messages the subscriber has passed: received or missed. Two cache lines away from ARMED, because
/// processors fetch lines in pairs.
const TAKEN: usize = 16;
/// The words of a row.
pub(crate) const WORDS: usize = 32;

/// The row of one subscription, for the subscriber and for the publisher.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubscriberRow<'a>(&'a [AtomicU64]);

impl<'a> SubscriberRow<'a> {
    /// A row over these words, at least [`WORDS`] of them. Panics if there are fewer.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64]) -> SubscriberRow<'a> {
        SubscriberRow(&words[..WORDS])
    }

    /// The subscriber does not sleep any more.
    pub(crate) fn disarm(self) {
        self.0[ARMED].store(0, Ordering::Relaxed);
    }

    /// T1 and T2 of the subscriber: it has passed `taken` messages. The fence is only needed if the publisher ever
    /// waits for subscribers (`waits`); then T3 must follow.
    #[inline]
    pub(crate) fn set_taken<O: Orderings>(self, taken: u64, waits: bool) {
        self.0[TAKEN].store(taken, Ordering::Release);
        if O::TAKE_FENCE && waits {
            fence(Ordering::SeqCst);
        }
    }

    /// How many messages the subscriber says that it has passed.
    #[inline]
    pub(crate) fn taken(self) -> u64 {
        self.0[TAKEN].load(Ordering::Acquire)
    }

    /// T3 of the publisher: whether it must send a byte for this sleep. `woken` is the number of the last sleep that it
    /// sent a byte for; this updates it.
    #[inline]
    pub(crate) fn needs_wake(self, woken: &mut u64) -> bool {
        let armed = self.0[ARMED].load(Ordering::Relaxed);
        armed != 0 && armed != std::mem::replace(woken, armed)
    }
}

/// S1 and S2 of a subscriber, in the rows of all its publishers. `number` must differ from that of the last sleep. S3
/// must follow.
pub(crate) fn arm<'a, O: Orderings>(rows: impl Iterator<Item = SubscriberRow<'a>>, number: u64) {
    rows.for_each(|row| row.0[ARMED].store(number, Ordering::Relaxed));
    if O::ARM_FENCE {
        fence(Ordering::SeqCst);
    }
}
