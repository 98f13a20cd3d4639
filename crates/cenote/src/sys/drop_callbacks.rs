//! What is to be done when something ends.

use std::fmt;

use crate::sys::process_lock::ProcessLock;

type End = Box<dyn FnOnce() + Send>;

/// Called when it is dropped, on the thread that does so; not in a forked child, for it is its
/// parent's wish.
#[derive(Default)]
pub(crate) struct Ends(ProcessLock<Vec<(u64, End)>>);

impl Ends {
    /// Has `end` called, unless something is to be called for this key already. Whether it will be;
    /// not in a forked child, where it is not known what its parent wanted.
    pub(crate) fn add(&self, key: u64, end: impl FnOnce() + Send + 'static) -> bool {
        let Some(mut ends) = self.0.lock() else { return false };
        let new = ends.iter().all(|(other, _)| *other != key);
        if new {
            ends.push((key, Box::new(end)));
        }
        new
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if self.0.is_ours() {
            self.0.get_mut().drain(..).for_each(|(_, end)| end());
        }
    }
}

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ends")
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "fork")]
mod tests {
    use crate::sync::{AtomicU64, Ordering};
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_key_is_called_once_and_at_the_end() {
        let (ends, sum) = (Ends::default(), Arc::new(AtomicU64::new(0)));
        let add = |key, value| {
            let sum = Arc::clone(&sum);
            ends.add(key, move || {
                sum.fetch_add(value, Ordering::Relaxed);
            })
        };
        assert!(add(1, 1) && !add(1, 10) && add(2, 100));
        assert_eq!(sum.load(Ordering::Relaxed), 0);
        drop(ends);
        assert_eq!(sum.load(Ordering::Relaxed), 101);
    }

    #[test]
    fn a_forked_child_does_not_do_what_its_parent_wanted() {
        let ends = Ends::default();
        // SAFETY: it ends the child, with a code that tells.
        assert!(ends.add(1, || unsafe { libc::_exit(7) }));
        // SAFETY: the child takes no lock, and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(ends);
            // SAFETY: it ends the child.
            unsafe { libc::_exit(0) };
        }
        std::mem::forget(ends);
        let mut status = 0;
        // SAFETY: the child is ours, and the pointer good for a status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
