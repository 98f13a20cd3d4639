//! A lock that only the process that created it takes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys::fork::Creator;

/// A lock that a forked child does not take: a thread that held it during the fork does not exist in the child, and never
/// releases it there.
///
/// Poisoning is ignored: no code under such a lock panics in the middle of a change.
#[derive(Debug)]
pub(crate) struct ProcessLock<T> {
    creator: Creator,
    value: Mutex<T>,
}

impl<T> ProcessLock<T> {
    pub(crate) fn new(value: T) -> ProcessLock<T> {
        ProcessLock { creator: Creator::this_process(), value: Mutex::new(value) }
    }

    /// Takes the lock; `None` in a forked child.
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, T>> {
        self.is_ours().then(|| self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this process created it.
    pub(crate) fn is_ours(&self) -> bool {
        !self.creator.is_inherited()
    }

    /// The value. `&mut self` makes the lock unnecessary.
    #[cfg(feature = "gl")]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for ProcessLock<T> {
    fn default() -> Self {
        ProcessLock::new(T::default())
    }
}

#[cfg(test)]
#[allow(unsafe_code, clippy::unwrap_used, reason = "fork, and a panic fails the test")]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_does_not_wait_for_a_thread_of_its_parent() {
        let lock = ProcessLock::new(7);
        let held = lock.lock().unwrap();
        // SAFETY: the child takes no lock, and ends with `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: alarm(2) may be called anywhere. It ends the child if it waits.
            unsafe { libc::alarm(20) };
            let refused = lock.lock().is_none();
            // SAFETY: `_exit` may be called anywhere.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = 0;
        // SAFETY: the child was forked above, and the pointer is to a live status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        drop(held);
        assert_eq!(*lock.lock().unwrap(), 7);
    }
}
