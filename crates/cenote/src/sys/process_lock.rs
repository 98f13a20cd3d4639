//! A lock of the process that made it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys::fork::Creator;

/// A lock that a forked child never takes: whoever held it when the process forked is not there to let
/// go of it.
///
/// No code under such a lock panics between two halves of a change.
#[derive(Debug)]
pub(crate) struct ProcessLock<T> {
    creator: Creator,
    value: Mutex<T>,
}

impl<T> ProcessLock<T> {
    pub(crate) fn new(value: T) -> ProcessLock<T> {
        ProcessLock { creator: Creator::this_process(), value: Mutex::new(value) }
    }

    /// The value; `None` in a forked child.
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, T>> {
        self.is_ours().then(|| self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this process made it.
    pub(crate) fn is_ours(&self) -> bool {
        !self.creator.is_inherited()
    }

    /// The value, which nobody else can have: that takes no lock.
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
    fn a_forked_child_does_not_wait_for_a_holder_that_it_does_not_have() {
        let lock = ProcessLock::new(7);
        let held = lock.lock().unwrap();
        // SAFETY: the child takes no lock, and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it ends the child, should that wait after all.
            unsafe { libc::alarm(20) };
            let refused = lock.lock().is_none();
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = 0;
        // SAFETY: the child is ours, and the pointer good for a status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        drop(held);
        assert_eq!(*lock.lock().unwrap(), 7);
    }
}
