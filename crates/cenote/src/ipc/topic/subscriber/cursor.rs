//! Where a subscriber stands in a ring, and whether there is anything to take: without a lock, so that
//! asking costs next to nothing.

use std::sync::{Arc, OnceLock};

use crate::ipc::ring::{Entry, Found, Reader, Shape};
use crate::ipc::shared::words::Words;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A ring in mapped memory.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) words: Words,
    pub(crate) shape: Shape,
    /// The sequence that it began with.
    pub(crate) first: u64,
}

impl Ring {
    #[inline]
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(self.words.get(), self.shape)
    }
}

/// A place in a ring.
#[derive(Debug)]
pub(crate) struct Spot {
    pub(crate) ring: Arc<Ring>,
    /// The sequence of the next message to take. Written under the subscriber's lock; whoever reads it
    /// without may see an old one, and then finds that there is something to look at.
    cursor: AtomicU64,
    /// Nobody stands here any more.
    left: AtomicBool,
}

impl Spot {
    pub(crate) fn new(ring: Arc<Ring>, cursor: u64) -> Spot {
        Spot { ring, cursor: AtomicU64::new(cursor), left: AtomicBool::new(false) }
    }

    #[inline]
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_cursor(&self, cursor: u64) {
        self.cursor.store(cursor, Ordering::Relaxed);
    }

    /// Where the next message to take is, or will be.
    #[inline(always)]
    pub(crate) fn entry(&self) -> Entry<'_> {
        self.ring.reader().entry(self.cursor())
    }

    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    /// Whether there is nothing to take, and may be later.
    #[inline(always)]
    fn is_quiet(&self) -> bool {
        (self.entry().peek() == Found::Nothing && !self.ring.reader().is_closed())
            || self.left.load(Ordering::Relaxed)
    }
}

/// How many publishers can be asked after without a lock: the first that came.
const SPOTS: usize = 8;

/// The spots of a subscriber. Each is filled once, and the ring stays mapped as long as the subscriber
/// is there: so they can be looked at by anybody at any time.
#[derive(Debug, Default)]
pub(crate) struct Spots {
    spots: [OnceLock<Arc<Spot>>; SPOTS],
    /// How many of them are filled. Stored under the subscriber's lock.
    filled: AtomicUsize,
    /// There are more, or something else than a message is to be looked at.
    look: AtomicBool,
}

impl Spots {
    /// Adds a spot. Those for which there is no room are looked at under the lock, which the caller
    /// holds.
    pub(crate) fn add(&self, spot: &Arc<Spot>) {
        let filled = self.filled.load(Ordering::Relaxed);
        match self.spots.get(filled) {
            Some(free) => {
                let _ = free.set(spot.clone());
                self.filled.store(filled + 1, Ordering::Release);
            }
            None => self.look_always(),
        }
    }

    /// From here on, [`Spots::are_quiet`] says no.
    pub(crate) fn look_always(&self) {
        self.look.store(true, Ordering::Relaxed);
    }

    /// Whether there is nothing to take, as far as can be told at a glance.
    #[inline(always)]
    pub(crate) fn are_quiet(&self) -> bool {
        let quiet = |spot: &OnceLock<Arc<Spot>>| spot.get().is_none_or(|spot| spot.is_quiet());
        let filled = self.filled.load(Ordering::Acquire).min(SPOTS);
        !self.look.load(Ordering::Relaxed) && self.spots[..filled].iter().all(quiet)
    }
}
