//! Counting what a topic does, and why it copied.

use crate::sync::{AtomicU64, Ordering};

/// Why a tensor was copied before it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StagedBecause {
    /// It is on the heap, where no other process sees it.
    Heap,
    /// Its shared memory could not be adopted: somebody may still write it, it is not all there, or the
    /// topic has adopted as much as it can.
    NotAdopted,
    /// Its planes are in several buffers.
    FarPlanes,
    /// It came from a pool whose owner is dead: nobody could attach to it any more.
    OwnerGone,
    /// It is in an OpenGL buffer, which no other process sees.
    Pbo,
    /// It is [lent](crate::Tensor::lend) to somebody who may go on writing it, such as an array of
    /// Python.
    Lent,
}

pub(crate) const REASONS: [StagedBecause; 6] = [
    StagedBecause::Heap,
    StagedBecause::NotAdopted,
    StagedBecause::FarPlanes,
    StagedBecause::OwnerGone,
    StagedBecause::Pbo,
    StagedBecause::Lent,
];

/// How often, and how much, was copied for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StagedCopies {
    /// The reason.
    pub reason: StagedBecause,
    /// The number of copies.
    pub count: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// What a [`Topic`](crate::Topic) object has done so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TopicStats {
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Messages that were lost: see [`Topic::missed`](crate::Topic::missed).
    pub missed: u64,
    /// Publishers that are attached to, this object's own not counted. One that is gone counts while
    /// something that it sent is left to take.
    pub publishers: usize,
    /// Subscribers of this object, itself not counted.
    pub subscribers: usize,
    /// Tensors that had to be copied before they were sent, by reason; those that never happened are
    /// left out.
    pub copies: Vec<StagedCopies>,
}

/// The counters behind [`TopicStats::copies`].
#[derive(Debug, Default)]
pub(crate) struct StagedCounters([(AtomicU64, AtomicU64); REASONS.len()]);

impl StagedCounters {
    pub(crate) fn count(&self, reason: StagedBecause, bytes: usize) {
        let (count, total) = &self.0[reason as usize];
        count.fetch_add(1, Ordering::Relaxed);
        total.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How often and how much, in the order of [`REASONS`].
    pub(crate) fn numbers(&self) -> [[u64; 2]; REASONS.len()] {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        self.0.each_ref().map(|(count, bytes)| [load(count), load(bytes)])
    }

    pub(crate) fn all(&self) -> Vec<StagedCopies> {
        staged(&self.numbers())
    }
}

/// What numbers in the order of [`REASONS`] mean; what never happened is left out.
pub(crate) fn staged(numbers: &[[u64; 2]; REASONS.len()]) -> Vec<StagedCopies> {
    let counted = REASONS.into_iter().zip(*numbers).filter(|(_, [count, _])| *count > 0);
    counted.map(|(reason, [count, bytes])| StagedCopies { reason, count, bytes }).collect()
}
