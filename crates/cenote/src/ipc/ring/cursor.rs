//! A mapped ring, and a read position in it.

use std::sync::Arc;

use crate::ipc::ring::ring::{RingEntry, RingReader, RingShape};
use crate::ipc::shared::words::Words;

/// A ring in mapped memory.
#[derive(Debug)]
pub(crate) struct MappedRing {
    pub(crate) words: Words,
    pub(crate) shape: RingShape,
    /// The sequence of the publisher's first message.
    pub(crate) first: u64,
}

impl MappedRing {
    #[inline]
    pub(crate) fn reader(&self) -> RingReader<'_> {
        RingReader::new(self.words.get(), self.shape)
    }
}

/// The read position of one reader in one ring.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) ring: Arc<MappedRing>,
    /// The sequence of the message to read next.
    pub(crate) next: u64,
}

impl Cursor {
    pub(crate) fn new(ring: Arc<MappedRing>, next: u64) -> Cursor {
        Cursor { ring, next }
    }

    /// The entry of the message to read next, whether or not the message is there yet.
    #[inline(always)]
    pub(crate) fn entry(&self) -> RingEntry<'_> {
        self.ring.reader().entry(self.next)
    }

    /// Moves on by `count` messages.
    #[inline(always)]
    pub(crate) fn advance(&mut self, count: u64) {
        self.next = self.next.wrapping_add(count);
    }

    /// How many messages are lost, if the next one was found to be overwritten: at least 1. The head comes from
    /// another process; if it makes no sense, the answer is 1.
    pub(crate) fn overwritten(&self) -> u64 {
        let behind = self.ring.reader().oldest(self.ring.first).wrapping_sub(self.next);
        if behind > 1 && behind < u64::MAX / 2 { behind } else { 1 }
    }

    /// How many unread messages are older than the newest one. The head comes from another process; if it makes no
    /// sense, the answer is 0.
    pub(crate) fn older_than_newest(&self) -> u64 {
        let ahead = self.ring.reader().head().wrapping_sub(self.next);
        if ahead > 1 && ahead < u64::MAX / 2 { ahead - 1 } else { 0 }
    }
}
