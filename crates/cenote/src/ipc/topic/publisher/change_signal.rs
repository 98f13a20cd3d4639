//! A counter that threads of this process wait for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts changes. A thread reads the count, looks at the state that it waits for, and then waits for a higher count:
/// so it misses no change in between.
#[derive(Debug, Default)]
pub(crate) struct ChangeSignal {
    count: Mutex<u64>,
    changed: Condvar,
}

impl ChangeSignal {
    fn lock(&self) -> MutexGuard<'_, u64> {
        // A panic leaves the number whole.
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changes there were so far. Read it before the state that is waited for.
    pub(crate) fn count(&self) -> u64 {
        *self.lock()
    }

    /// Counts a change, and notifies all threads that wait.
    pub(crate) fn notify(&self) {
        *self.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until there were more changes than `seen`, or the time is over.
    pub(crate) fn wait(&self, seen: u64, timeout: Duration) {
        let unchanged = |count: &mut u64| *count == seen;
        drop(self.changed.wait_timeout_while(self.lock(), timeout, unchanged));
    }
}
