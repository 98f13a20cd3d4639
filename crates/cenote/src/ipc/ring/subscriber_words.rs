//! The row of a subscription: the words that a subscriber writes and its publisher reads.
//!
//! Either may sleep until the other has done something, and neither must sleep through it:
//!
//! ```text
//!   who will sleep                        who has something to tell
//!   S1  say so                            T1  tell it
//!   S2  SeqCst fence                      T2  SeqCst fence
//!   S3  look once more, then sleep        T3  look who said so, and wake it
//! ```
//!
//! The fences are totally ordered, so of S3 and T3 at least one sees what the other side wrote before
//! its fence. A subscriber arms ([`arm`]) and looks for a message, which is told by
//! [`Writer::publish`](crate::ipc::ring::Writer::publish); a publisher sets a flag in its ring
//! ([`Writer::wait`](crate::ipc::ring::Writer::wait)) and looks for what was taken, which is told by
//! [`Row::take`].

use crate::sync::{AtomicU64, Ordering, fence};

/// Non-zero: the subscriber sleeps, or is about to. A different number each time.
const ARMED: usize = 0;
/// How many messages it has passed. On a cache line of its own, and not beside the first: processors
/// fetch them by twos.
const TAKEN: usize = 16;
/// The words of a row.
pub(crate) const WORDS: usize = 32;

/// The parts of the protocol that a model can take away to show that they are needed.
pub(crate) trait Orderings {
    /// S2 of a subscriber.
    const ARM_FENCE: bool = true;
    /// T2 of a subscriber.
    const TAKE_FENCE: bool = true;
}

/// The protocol with nothing taken away.
#[derive(Debug)]
pub(crate) struct Shipped;

impl Orderings for Shipped {}

/// A row, in the eyes of either side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a>(&'a [AtomicU64]);

impl<'a> Row<'a> {
    /// Over the words of a row, of which there must be [`WORDS`].
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64]) -> Row<'a> {
        Row(&words[..WORDS])
    }

    /// The subscriber does not sleep any more.
    pub(crate) fn disarm(self) {
        self.0[ARMED].store(0, Ordering::Relaxed);
    }

    /// Publishes how many messages were passed. Look afterwards whether the publisher waits for that,
    /// if it ever does.
    #[inline]
    pub(crate) fn take<O: Orderings>(self, passed: u64, waits: bool) {
        self.0[TAKEN].store(passed, Ordering::Release);
        if O::TAKE_FENCE && waits {
            fence(Ordering::SeqCst);
        }
    }

    /// How many messages were passed, as the subscriber says.
    #[inline]
    pub(crate) fn taken(self) -> u64 {
        self.0[TAKEN].load(Ordering::Acquire)
    }

    /// Whether the subscriber sleeps and was not told yet; `told` is the last number under which it
    /// was.
    #[inline]
    pub(crate) fn is_to_be_woken(self, told: &mut u64) -> bool {
        let armed = self.0[ARMED].load(Ordering::Relaxed);
        armed != 0 && armed != std::mem::replace(told, armed)
    }
}

/// Asks for a byte when there is something new, each time with another `number`. Look for it
/// afterwards, before sleeping.
pub(crate) fn arm<'a, O: Orderings>(rows: impl Iterator<Item = Row<'a>>, number: u64) {
    rows.for_each(|row| row.0[ARMED].store(number, Ordering::Relaxed));
    if O::ARM_FENCE {
        fence(Ordering::SeqCst);
    }
}
