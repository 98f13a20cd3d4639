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

#[cfg(all(test, not(loom)))]
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

/// Maps begin and end while the context is closed. loom reports a "Causality violation" if the context can be torn down while
/// a map is used.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::cell::Cell;
    use loom::sync::Arc;
    use loom::{model, thread};

    use super::*;

    /// The operations of [`LiveMaps`], of which a negative model replaces one.
    #[derive(Clone, Copy)]
    struct Operations {
        begin: fn(&LiveMaps) -> bool,
        end: fn(&LiveMaps) -> bool,
    }

    const SHIPPED: Operations = Operations { begin: LiveMaps::begin, end: LiveMaps::end };

    struct Context {
        maps: LiveMaps,
        /// How often it was torn down. Reading it stands for the use of a map.
        torn_down: Cell<u32>,
    }

    impl Context {
        fn use_map(&self, operations: Operations) {
            if (operations.begin)(&self.maps) {
                assert_eq!(self.torn_down.get(), 0, "a map of a context that is gone");
                if (operations.end)(&self.maps) {
                    self.tear_down();
                }
            }
        }

        fn close(&self) {
            if self.maps.close() == 0 {
                self.tear_down();
            }
        }

        fn tear_down(&self) {
            self.torn_down.set(self.torn_down.get() + 1);
        }
    }

    fn close_among_maps(operations: Operations) {
        model(move || {
            let maps = LiveMaps(AtomicUsize::new(0));
            let context = Arc::new(Context { maps, torn_down: Cell::new(0) });
            let users = [(); 2].map(|()| {
                let context = context.clone();
                thread::spawn(move || context.use_map(operations))
            });
            context.close();
            for user in users {
                user.join().unwrap();
            }
            assert_eq!(context.torn_down.get(), 1, "by the closer, or by the last map");
        });
    }

    #[test]
    fn loom_a_closed_context_is_torn_down_once_and_after_the_last_map() {
        close_among_maps(SHIPPED);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_needs_the_release_of_a_map() {
        let end = |maps: &LiveMaps| maps.0.fetch_sub(1, Ordering::Acquire) == CLOSED + 1;
        close_among_maps(Operations { end, ..SHIPPED });
    }

    #[test]
    #[should_panic(expected = "by the closer, or by the last map")]
    fn loom_needs_that_a_refused_map_is_never_counted() {
        let begin = |maps: &LiveMaps| {
            let began = maps.0.fetch_add(1, Ordering::Acquire) & CLOSED == 0;
            if !began {
                maps.0.fetch_sub(1, Ordering::AcqRel);
            }
            began
        };
        close_among_maps(Operations { begin, ..SHIPPED });
    }
}
