//! Waiting, as Python does it: for a number of seconds, with other threads running meanwhile, and
//! with Ctrl-C.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::error::{Result, bad_argument};

/// How long Ctrl-C has to wait, at most.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// Seconds, as Python counts them.
pub(crate) fn duration(seconds: f64) -> Result<Duration> {
    // For ever, as good as.
    if seconds > 1e18 {
        return Ok(Duration::MAX);
    }
    let bad =
        |_| bad_argument(format!("a timeout is a number of seconds from 0 on, not {seconds}"));
    Duration::try_from_secs_f64(seconds).map_err(bad)
}

/// Calls `wait` with a short time again and again, without the interpreter, until it gives something,
/// the `timeout` is over (`None`: never), or a signal's handler raises. `wait` gives `Ok(None)` if its
/// time was over.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut wait: impl FnMut(Duration) -> cenote::Result<Option<T>> + Send,
) -> Result<Option<T>> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map_or(SLICE, |deadline| deadline - Instant::now());
        let found = py.detach(|| wait(left.min(SLICE)))?;
        if found.is_some() || (deadline.is_some() && left <= SLICE) {
            return Ok(found);
        }
        py.check_signals()?;
    }
}
