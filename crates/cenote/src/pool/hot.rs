//! A place for one thing, exchanged without a lock.

use std::fmt;

use crossbeam_utils::atomic::AtomicCell;

/// Room for one thing that anybody may take.
pub(crate) struct Hot<S>(AtomicCell<Option<S>>);

impl<S> Hot<S> {
    pub(crate) fn new() -> Self {
        // A pointer and its niche are one word; anything larger would be a lock in disguise.
        const { assert!(AtomicCell::<Option<S>>::is_lock_free()) };
        Hot(AtomicCell::new(None))
    }

    pub(crate) fn take(&self) -> Option<S> {
        self.0.take()
    }

    /// Puts a thing there, and gives back the one that was.
    pub(crate) fn swap(&self, thing: S) -> Option<S> {
        self.0.swap(Some(thing))
    }
}

impl<S> fmt::Debug for Hot<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hot")
    }
}
