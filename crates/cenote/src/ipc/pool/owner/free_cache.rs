//! The free cache: buffers that can be allocated without the lock of the pool. Their slots still count as allocated.
//!
//! Without it, the benchmark rows `hand-off/one way` and `pool/alloc + drop` take 60 % and 741 % longer.

use std::sync::Arc;

use crate::ipc::lease::reclaim::BATCH;
use crate::sync::{Biased, fetch_to_write, put_behind};

/// A few buffers behind a lock. A thread that holds this lock takes no other.
#[derive(Debug)]
pub(crate) struct FreeCache<S>(Biased<FreeBuffers<S>>);

#[derive(Debug)]
struct FreeBuffers<S> {
    /// The buffer that was recycled last: its bytes are still in the caches of the processor. Without this place, the
    /// benchmark rows `pool/alloc + drop` and `growth/alloc, send, recv, drop` take 754 % and 66 % longer.
    last: Option<Arc<S>>,
    /// Buffers whose slots were claimed together, in the order of allocation: a ring, with `count` of them from `first`
    /// on.
    batch: [Option<Arc<S>>; BATCH],
    first: usize,
    count: usize,
    /// The addresses of their bytes: hints for prefetching, never dereferenced.
    addresses: [usize; BATCH],
    /// The cache keeps nothing.
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

    /// Takes a buffer, if there is one.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Arc<S>> {
        let mut buffers = self.0.lock();
        buffers.last.take().or_else(|| buffers.take_first())
    }

    /// Puts a buffer into the first place of the cache that `of` finds for it. Returns the buffer that was there, or the new
    /// one if it has no cache or the cache is shut. The buffer may hold the last reference to its pool.
    #[inline]
    pub(crate) fn put_last(
        buffer: Arc<S>,
        of: impl FnOnce(&S) -> Option<&FreeCache<S>>,
    ) -> Option<Arc<S>> {
        put_behind(buffer, |buffer| Some(&of(buffer)?.0), FreeBuffers::last).unwrap_or_else(Some)
    }

    /// Adds a buffer whose bytes are at this address. Returns it if there is no room.
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

    /// Takes all buffers, and refuses others from now on.
    pub(crate) fn shut(&self) -> Vec<Arc<S>> {
        let mut buffers = self.0.lock();
        buffers.shut = true;
        buffers.count = 0;
        let FreeBuffers { last, batch, .. } = &mut *buffers;
        batch.iter_mut().chain([last]).filter_map(Option::take).collect()
    }

    /// Undoes [`FreeCache::shut`].
    pub(crate) fn open(&self) {
        self.0.lock().shut = false;
    }
}

impl<S> FreeBuffers<S> {
    /// The place of the buffer that was recycled last.
    #[inline]
    fn last(&mut self) -> Option<&mut Option<Arc<S>>> {
        (!self.shut).then_some(&mut self.last)
    }

    /// Takes the oldest of the batch.
    #[inline(always)]
    fn take_first(&mut self) -> Option<Arc<S>> {
        let buffer = self.batch[self.first % BATCH].take()?;
        (self.first, self.count) = ((self.first + 1) % BATCH, self.count - 1);
        // Readers have the lines of the next slot in their caches. This fetches the first one to be written. Without it,
        // the benchmark row `hand-off/one way, Image` takes 12 to 23 % longer.
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
    fn a_batch_fits_and_no_more() {
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

    /// A value that refers to its cache.
    struct Numbered(u64, Arc<FreeCache<Numbered>>);

    #[test]
    fn the_last_recycled_buffer_is_taken_first_then_the_batch_in_order() {
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
