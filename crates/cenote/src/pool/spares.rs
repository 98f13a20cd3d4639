//! What an attached process keeps of slots that it has given back: whatever a handle of one is made of,
//! so that the next lease of the slot need not make it again, nor take a lock.

use std::sync::Arc;

use crate::pool::hot::Hot;

/// A place for each slot of a pool. All are shut in the beginning.
#[derive(Debug)]
pub(crate) struct Spares<S>(Box<[Hot<S>]>);

impl<S> Spares<S> {
    pub(crate) fn new(max_slots: u32) -> Self {
        let spares = Spares((0..max_slots).map(|_| Hot::new()).collect());
        spares.shut();
        spares
    }

    /// The place of a slot; slot numbers are input.
    #[inline]
    pub(crate) fn of(&self, slot: u32) -> Option<&Hot<S>> {
        self.0.get(slot as usize)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().filter(|place| place.is_full()).count()
    }

    /// Keeps what is given back, from here on.
    pub(crate) fn open(&self) {
        self.0.iter().for_each(Hot::open);
    }

    /// Keeps nothing any more; gives back what was kept.
    pub(crate) fn shut(&self) -> Vec<Arc<S>> {
        self.0.iter().filter_map(Hot::shut).collect()
    }

    /// All that was kept.
    pub(crate) fn take(&self) -> Vec<Arc<S>> {
        self.0.iter().filter_map(Hot::take).collect()
    }
}
