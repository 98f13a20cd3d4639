//! Something that threads of this process wait for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts how often it was given.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    count: Mutex<u64>,
    given: Condvar,
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, u64> {
        // A number is whole.
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often it was given so far. Ask before looking at what is waited for.
    pub(crate) fn count(&self) -> u64 {
        *self.lock()
    }

    pub(crate) fn give(&self) {
        *self.lock() += 1;
        self.given.notify_all();
    }

    /// Waits until it was given more often than `seen`, or for so long.
    pub(crate) fn wait(&self, seen: u64, timeout: Duration) {
        let unchanged = |count: &mut u64| *count == seen;
        drop(self.given.wait_timeout_while(self.lock(), timeout, unchanged));
    }
}
