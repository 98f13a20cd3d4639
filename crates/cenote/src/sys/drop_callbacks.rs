//! Callbacks that run when their owner is dropped.

use std::fmt;

use crate::sys::process_lock::ProcessLock;

type Callback = Box<dyn FnOnce() + Send>;

/// A list of callbacks, at most one for each key. Dropping the list calls them, on the thread that drops it.
///
/// A forked child does not call them: they were added by its parent, which calls its own copies.
#[derive(Default)]
pub(crate) struct DropCallbacks(ProcessLock<Vec<(u64, Callback)>>);

impl DropCallbacks {
    /// Adds a callback, unless there is one with this key. Returns whether it was added. A forked child adds none to
    /// its parent's list, because the lock may be held by a thread that it does not have.
    pub(crate) fn add(&self, key: u64, callback: impl FnOnce() + Send + 'static) -> bool {
        let Some(mut callbacks) = self.0.lock() else { return false };
        let new = callbacks.iter().all(|(other, _)| *other != key);
        if new {
            callbacks.push((key, Box::new(callback)));
        }
        new
    }
}

impl Drop for DropCallbacks {
    fn drop(&mut self) {
        if self.0.is_ours() {
            self.0.get_mut().drain(..).for_each(|(_, callback)| callback());
        }
    }
}

impl fmt::Debug for DropCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DropCallbacks")
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "fork")]
mod tests {
    use crate::sync::{AtomicU64, Ordering};
    use std::sync::Arc;

    use super::*;

    #[test]
    fn one_callback_a_key_runs_and_on_drop() {
        let (callbacks, sum) = (DropCallbacks::default(), Arc::new(AtomicU64::new(0)));
        let add = |key, value| {
            let sum = Arc::clone(&sum);
            callbacks.add(key, move || {
                sum.fetch_add(value, Ordering::Relaxed);
            })
        };
        assert!(add(1, 1) && !add(1, 10) && add(2, 100));
        assert_eq!(sum.load(Ordering::Relaxed), 0);
        drop(callbacks);
        assert_eq!(sum.load(Ordering::Relaxed), 101);
    }

    #[test]
    fn a_forked_child_does_not_run_the_callbacks_of_its_parent() {
        let callbacks = DropCallbacks::default();
        // SAFETY: `_exit` may be called anywhere. The code shows that the callback ran.
        assert!(callbacks.add(1, || unsafe { libc::_exit(7) }));
        // SAFETY: the child takes no lock, and ends with `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(callbacks);
            // SAFETY: `_exit` may be called anywhere.
            unsafe { libc::_exit(0) };
        }
        std::mem::forget(callbacks);
        let mut status = 0;
        // SAFETY: the child was forked above, and the pointer is to a live status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
