//! Spares that are ready to be handed out without the lock of the pool: their slots are still allocated, though
//! nobody has them.

use std::sync::Arc;

use crate::ipc::lease::reclaim::BATCH;
use crate::sync::{Biased, fetch_to_write, put_behind};

/// A few places, behind a lock of their own. Whoever has that takes no other.
#[derive(Debug)]
pub(crate) struct FreeCache<S>(Biased<FreeBuffers<S>>);

#[derive(Debug)]
struct FreeBuffers<S> {
    /// For the one that was let go of last, and that nobody else has: its bytes are still in the caches.
    last: Option<Arc<S>>,
    /// For those that were retired together, to be handed out one after another: a ring, with `count` of them from
    /// `first` on.
    batch: [Option<Arc<S>>; BATCH],
    first: usize,
    count: usize,
    /// Where the bytes of those are: a hint, never followed.
    addresses: [usize; BATCH],
    /// Nothing is kept.
    shut: bool,
}

impl<S> FreeCache<S> {
    pub(crate) fn new() -> Self {
        FreeCache(Biased::new(FreeBuffers {
            last: None,
            batch: std::array::from_fn(|_| None),
            first: 0,
            count: 0,
            addresses: [0; BATCH],
            shut: false,
        }))
    }

    /// Takes one, if there is any.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Arc<S>> {
        let mut buffers = self.0.lock();
        buffers.last.take().or_else(|| buffers.take_first())
    }

    /// Keeps the one that was let go of last, in the pool that `of` finds. Gives back the one before; or the spare
    /// itself, if it has no pool, or that keeps nothing. The spare may be all that keeps the pool.
    #[inline]
    pub(crate) fn put_last(
        buffer: Arc<S>,
        of: impl FnOnce(&S) -> Option<&FreeCache<S>>,
    ) -> Option<Arc<S>> {
        put_behind(buffer, |buffer| Some(&of(buffer)?.0), FreeBuffers::last).unwrap_or_else(Some)
    }

    /// Adds one that was retired, whose bytes are there, or gives it back if there is no room.
    pub(crate) fn add(&self, buffer: Arc<S>, bytes: *const u8) -> Result<(), Arc<S>> {
        let mut buffers = self.0.lock();
        if buffers.shut || buffers.count == BATCH {
            return Err(buffer);
        }
        let free = (buffers.first + buffers.count) % BATCH;
        (buffers.batch[free], buffers.addresses[free]) = (Some(buffer), bytes.addr());
        buffers.count += 1;
        Ok(())
    }

    /// Takes all there are, and refuses everything from here on.
    pub(crate) fn shut(&self) -> Vec<Arc<S>> {
        let mut buffers = self.0.lock();
        buffers.shut = true;
        buffers.count = 0;
        let FreeBuffers { last, batch, .. } = &mut *buffers;
        batch.iter_mut().chain([last]).filter_map(Option::take).collect()
    }

    /// Undoes [`Ready::shut`].
    pub(crate) fn open(&self) {
        self.0.lock().shut = false;
    }
}

impl<S> FreeBuffers<S> {
    /// Where the one goes that was let go of last.
    #[inline]
    fn last(&mut self) -> Option<&mut Option<Arc<S>>> {
        (!self.shut).then_some(&mut self.last)
    }

    /// Takes the first of the batch.
    #[inline(always)]
    fn take_first(&mut self) -> Option<Arc<S>> {
        let buffer = self.batch[self.first % BATCH].take()?;
        (self.first, self.count) = ((self.first + 1) % BATCH, self.count - 1);
        // Others have read the one that is next, so that it is not here to be written.
        if self.count > 0 {
            fetch_to_write(std::ptr::without_provenance(self.addresses[self.first]));
        }
        Some(buffer)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_kept_and_no_more() {
        let free_cache = FreeCache::new();
        for n in 0..BATCH as u64 {
            assert_eq!(free_cache.add(Arc::new(n), std::ptr::null()), Ok(()));
        }
        assert_eq!(free_cache.add(Arc::new(99), std::ptr::null()), Err(Arc::new(99)));
        assert_eq!(free_cache.take(), Some(Arc::new(0)));
        assert_eq!(free_cache.add(Arc::new(99), std::ptr::null()), Ok(()));
        assert_eq!(free_cache.shut().len(), BATCH);
        assert_eq!(free_cache.add(Arc::new(1), std::ptr::null()), Err(Arc::new(1)));
        free_cache.open();
        assert_eq!(free_cache.add(Arc::new(1), std::ptr::null()), Ok(()));
        assert_eq!((free_cache.take(), free_cache.take()), (Some(Arc::new(1)), None));
    }

    /// Leads to where it is kept.
    struct Numbered(u64, Arc<FreeCache<Numbered>>);

    #[test]
    fn what_was_added_first_is_handed_out_first_and_what_was_let_go_of_before_that() {
        let free_cache = Arc::new(FreeCache::new());
        let new = |n: u64| Arc::new(Numbered(n, free_cache.clone()));
        let add = |n: u64| assert!(free_cache.add(new(n), std::ptr::null()).is_ok());
        let take = |count: usize| -> Vec<u64> {
            (0..count).filter_map(|_| free_cache.take()).map(|buffer| buffer.0).collect()
        };
        (0..6).for_each(add);
        assert_eq!(take(4), [0, 1, 2, 3]);
        (6..12).for_each(add);
        assert_eq!(take(3), [4, 5, 6]);
        let put =
            |n: u64| FreeCache::put_last(new(n), |buffer| Some(&buffer.1)).map(|buffer| buffer.0);
        assert_eq!((put(99), put(100)), (None, Some(99)));
        assert_eq!(take(9), [100, 7, 8, 9, 10, 11]);
    }
}
