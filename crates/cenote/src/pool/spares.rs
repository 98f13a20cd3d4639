//! What an attached process keeps of slots that it has given back: whatever a handle of one is made of,
//! so that the next lease of the slot need not make it again, nor take a lock.

use std::sync::Arc;

use crate::pool::hot::Hot;
use crate::sync::{AtomicPtr, Ordering, fetch_to_read};

/// A place for each slot of a pool. All are shut in the beginning.
#[derive(Debug)]
pub(crate) struct Spares<S> {
    places: Box<[Hot<S>]>,
    /// Where the bytes of each slot were last seen: a hint, never followed.
    seen: Box<[AtomicPtr<u8>]>,
}

impl<S> Spares<S> {
    pub(crate) fn new(max_slots: u32) -> Self {
        let places = (0..max_slots).map(|_| Hot::new()).collect();
        let seen = (0..max_slots).map(|_| AtomicPtr::default()).collect();
        let spares = Spares { places, seen };
        spares.shut();
        spares
    }

    /// Notes where the bytes of a slot are.
    pub(crate) fn note(&self, slot: u32, at: *const u8) {
        if let Some(seen) = self.seen.get(slot as usize) {
            seen.store(at.cast_mut(), Ordering::Relaxed);
        }
    }

    /// Has the first bytes of a slot on their way here, most likely.
    #[inline]
    pub(crate) fn fetch(&self, slot: u32) {
        if let Some(seen) = self.seen.get(slot as usize) {
            fetch_to_read(seen.load(Ordering::Relaxed));
        }
    }

    /// The place of a slot; slot numbers are input.
    #[inline]
    pub(crate) fn of(&self, slot: u32) -> Option<&Hot<S>> {
        self.places.get(slot as usize)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.places.iter().filter(|place| place.is_full()).count()
    }

    /// Keeps what is given back, from here on.
    pub(crate) fn open(&self) {
        self.places.iter().for_each(Hot::open);
    }

    /// Keeps nothing any more; gives back what was kept.
    pub(crate) fn shut(&self) -> Vec<Arc<S>> {
        self.places.iter().filter_map(Hot::shut).collect()
    }

    /// All that was kept.
    pub(crate) fn take(&self) -> Vec<Arc<S>> {
        self.places.iter().filter_map(Hot::take).collect()
    }
}
