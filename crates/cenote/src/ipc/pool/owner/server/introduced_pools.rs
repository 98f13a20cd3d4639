//! The pools that an owner introduces to the readers of another of its pools.

use std::sync::{Arc, Weak};

use crate::ipc::shared::wire::MAX_INTRODUCED;

/// The pools that are introduced to every reader, at most [`MAX_INTRODUCED`]. `T` is the owner's side of a pool.
#[derive(Debug)]
pub(crate) struct IntroducedPools<T>(Vec<Weak<T>>);

impl<T> IntroducedPools<T> {
    pub(crate) fn new() -> Self {
        IntroducedPools(Vec::new())
    }

    /// Adds a pool if there is room. Returns whether it is in the list.
    pub(crate) fn add(&mut self, pool: &Arc<T>) -> bool {
        if self.0.iter().any(|one| one.as_ptr() == Arc::as_ptr(pool)) {
            return true;
        }
        self.0.retain(|one| one.strong_count() > 0);
        let room = self.0.len() < MAX_INTRODUCED;
        if room {
            self.0.push(Arc::downgrade(pool));
        }
        room
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.iter().filter_map(Weak::upgrade).collect()
    }
}
