//! What is to be done when something ends.

use std::fmt;

use crate::os::process_lock::ProcessLock;

type End = Box<dyn FnOnce() + Send>;

/// Called when it is dropped, on the thread that does so.
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
        self.0.get_mut().drain(..).for_each(|(_, end)| end());
    }
}

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ends")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

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
}
