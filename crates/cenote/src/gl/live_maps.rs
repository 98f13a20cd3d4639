//! Counts the maps of a context's memory, and refuses new ones once the context is closed.

use crate::sync::{AtomicUsize, Ordering};

/// The bit that says closed. The other bits count the maps.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// The number of maps that exist, and whether the context is closed.
#[derive(Debug, Default)]
pub(crate) struct LiveMaps(AtomicUsize);

impl LiveMaps {
    /// Counts one more map and returns true, or returns false if closed.
    ///
    /// A refused map is never counted, not even for a moment: it would seem to keep the context alive, or
    /// to be the last one to end.
    pub(crate) fn begin(&self) -> bool {
        let add_one = |maps: usize| (maps & CLOSED == 0).then_some(maps + 1);
        // Acquire: a thread that finds it closed sees what happened before it was closed.
        self.0.fetch_update(Ordering::Acquire, Ordering::Acquire, add_one).is_ok()
    }

    /// Counts one map less, after [`begin`](LiveMaps::begin). Returns true for the last map if closed.
    pub(crate) fn end(&self) -> bool {
        // Release for the others, acquire for the last: it comes after all accesses through other maps.
        self.0.fetch_sub(1, Ordering::AcqRel) == CLOSED + 1
    }

    /// Closes it. Returns how many maps exist; they stay valid until they end.
    pub(crate) fn close(&self) -> usize {
        self.0.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Returns how many maps exist.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire) & !CLOSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_closed_no_map_begins_and_the_last_end_returns_true() {
        let maps = LiveMaps::default();
        assert!(maps.begin() && maps.begin());
        assert_eq!(maps.close(), 2);
        assert!(maps.is_closed() && !maps.begin());
        assert_eq!((maps.count(), maps.close()), (2, 2), "a refused map is not counted");
        assert!(!maps.end());
        assert_eq!(maps.count(), 1);
        assert!(maps.end());
        assert_eq!(maps.close(), 0);
        assert!(!maps.begin());
        assert_eq!(maps.close(), 0);
    }
}
