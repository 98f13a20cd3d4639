//! Counters of a topic, and why it copied tensors.

use crate::sync::{AtomicU64, Ordering};

/// Why a tensor was copied before it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StagedBecause {
    /// It is on the heap, which no other process sees.
    Heap,
    /// Its shared memory could not be adopted: it is not sealed against writing, it is shorter than the tensor, or the topic
    /// has adopted as much as it can.
    NotAdopted,
    /// Its planes are in different buffers.
    FarPlanes,
    /// It is in a pool whose owner is dead, so no process can attach to it.
    OwnerGone,
    /// It is in an OpenGL buffer, which no other process sees.
    Pbo,
    /// It has a live [loan](crate::Tensor::lend), such as a numpy array, through which it can be written.
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

/// How many tensors, and how many bytes, were copied for one reason.
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

/// What a [`Topic`](crate::Topic) object has sent and received so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TopicStats {
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Messages that were lost: see [`Topic::missed`](crate::Topic::missed).
    pub missed: u64,
    /// Publishers that are connected, not counting this object. One that has ended counts while it has messages to
    /// receive.
    pub publishers: usize,
    /// Subscribers of this object, not counting the object itself.
    pub subscribers: usize,
    /// Tensors that were copied before they were sent, by reason. Reasons that never occurred are left out.
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

    /// Number and bytes of copies, in the order of [`REASONS`].
    pub(crate) fn numbers(&self) -> [[u64; 2]; REASONS.len()] {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        self.0.each_ref().map(|(count, bytes)| [load(count), load(bytes)])
    }

    pub(crate) fn all(&self) -> Vec<StagedCopies> {
        staged(&self.numbers())
    }
}

/// Makes a list from numbers in the order of [`REASONS`]. Reasons that never occurred are left out.
pub(crate) fn staged(numbers: &[[u64; 2]; REASONS.len()]) -> Vec<StagedCopies> {
    let counted = REASONS.into_iter().zip(*numbers).filter(|(_, [count, _])| *count > 0);
    counted.map(|(reason, [count, bytes])| StagedCopies { reason, count, bytes }).collect()
}
