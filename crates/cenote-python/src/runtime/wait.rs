//! Waiting as Python code expects it: other threads run meanwhile, and Ctrl-C ends it.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::runtime::error::Result;

/// How often a waiting thread runs signal handlers: Ctrl-C takes effect after this time at most.
pub(crate) const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Calls `wait` with a short duration until it returns a value, and returns that; `None` once `timeout` is
/// over. Without a timeout it waits forever. Fails with what a signal handler raises, or with an error of
/// `wait`.
///
/// `wait` runs without the GIL, and returns `Ok(None)` when its duration is over.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut wait: impl FnMut(Duration) -> cenote::Result<Option<T>> + Send,
) -> Result<Option<T>> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map_or(SIGNAL_INTERVAL, |deadline| deadline - Instant::now());
        let found = py.detach(|| wait(left.min(SIGNAL_INTERVAL)))?;
        if found.is_some() || (deadline.is_some() && left <= SIGNAL_INTERVAL) {
            return Ok(found);
        }
        py.check_signals()?;
    }
}
