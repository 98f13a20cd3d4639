//! Spares that are ready to be handed out without the lock: their slots are still allocated, though nobody
//! has them.

use std::sync::Arc;

use crate::pool::hot::Hot;
use crate::pool::retire::BATCH;
use crate::sync::{AtomicPtr, Ordering, fetch_to_write};

/// A few places.
#[derive(Debug)]
pub(crate) struct Ready<S> {
    /// For the one that was let go of last, and that nobody else has: its bytes are still in the caches.
    last: Hot<S>,
    /// For those that were retired together, to be handed out one after another.
    batch: [Hot<S>; BATCH],
    /// Where the bytes of those are: a hint, never followed.
    seen: [AtomicPtr<u8>; BATCH],
}

impl<S> Ready<S> {
    pub(crate) fn new() -> Self {
        Ready {
            last: Hot::new(),
            batch: std::array::from_fn(|_| Hot::new()),
            seen: std::array::from_fn(|_| AtomicPtr::default()),
        }
    }

    /// Takes one, if there is any.
    #[inline]
    pub(crate) fn take(&self) -> Option<Arc<S>> {
        if let Some(spare) = self.last.take() {
            return Some(spare);
        }
        let (at, spare) =
            self.batch.iter().enumerate().find_map(|(at, place)| Some((at, place.take()?)))?;
        // Others have read the one that is next, so that it is not here to be written.
        if let Some(next) =
            self.batch.get(at + 1).filter(|next| next.is_full()).and(self.seen.get(at + 1))
        {
            fetch_to_write(next.load(Ordering::Relaxed));
        }
        Some(spare)
    }

    /// Where the one goes that was let go of last.
    #[inline]
    pub(crate) fn last(&self) -> &Hot<S> {
        &self.last
    }

    /// Adds one that was retired, whose bytes are there, or gives it back if there is no room.
    pub(crate) fn add(&self, mut spare: Arc<S>, bytes: *const u8) -> Result<(), Arc<S>> {
        for (place, seen) in self.batch.iter().zip(&self.seen) {
            match place.fill(spare) {
                Ok(()) => {
                    seen.store(bytes.cast_mut(), Ordering::Relaxed);
                    return Ok(());
                }
                Err(back) => spare = back,
            }
        }
        Err(spare)
    }

    /// Takes all there are, and refuses everything from here on.
    pub(crate) fn shut(&self) -> Vec<Arc<S>> {
        self.all().filter_map(Hot::shut).collect()
    }

    /// Undoes [`Ready::shut`].
    pub(crate) fn open(&self) {
        self.all().for_each(Hot::open);
    }

    #[inline]
    fn all(&self) -> impl Iterator<Item = &Hot<S>> {
        std::iter::once(&self.last).chain(&self.batch)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_kept_and_no_more() {
        let ready = Ready::new();
        for n in 0..BATCH as u64 {
            assert_eq!(ready.add(Arc::new(n), std::ptr::null()), Ok(()));
        }
        assert_eq!(ready.add(Arc::new(99), std::ptr::null()), Err(Arc::new(99)));
        assert_eq!(ready.take(), Some(Arc::new(0)));
        assert_eq!(ready.add(Arc::new(99), std::ptr::null()), Ok(()));
        assert_eq!(ready.shut().len(), BATCH);
        assert_eq!(ready.add(Arc::new(1), std::ptr::null()), Err(Arc::new(1)));
        ready.open();
        assert_eq!(ready.add(Arc::new(1), std::ptr::null()), Ok(()));
        assert_eq!((ready.take(), ready.take()), (Some(Arc::new(1)), None));
    }
}
