//! Whether a topic is open, and waiting that ends when it is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::prelude::*;

use crate::runtime::error::{Raised, Result, raise};
use crate::runtime::wait;

/// Whether a topic is open. It is atomic, not locked: a thread can read it without the GIL while another
/// thread forks.
#[derive(Debug)]
pub(crate) struct OpenFlag(AtomicBool);

impl OpenFlag {
    pub(crate) fn new() -> OpenFlag {
        OpenFlag(AtomicBool::new(true))
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// As [`wait::wait`], and fails once the topic is closed.
    pub(crate) fn wait<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        mut wait: impl FnMut(Duration) -> cenote::Result<Option<T>> + Send,
    ) -> Result<Option<T>> {
        let found = wait::wait(py, timeout, |slice| {
            let found = wait(slice)?;
            Ok((found.is_some() || !self.get()).then_some(found))
        })?;
        match found {
            Some(None) => Err(closed()),
            found => Ok(found.flatten()),
        }
    }
}

/// The error for a use of a closed topic.
pub(crate) fn closed() -> Raised {
    raise("Error", "the topic was closed".to_owned(), None)
}
