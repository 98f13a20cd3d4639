//! Timeouts as Python gives them: in seconds.

use std::time::Duration;

use crate::error::{Result, bad_argument};

/// Seconds, as Python counts them.
pub(crate) fn duration(seconds: f64) -> Result<Duration> {
    let bad =
        |_| bad_argument(format!("a timeout is a number of seconds from 0 on, not {seconds}"));
    Duration::try_from_secs_f64(seconds).map_err(bad)
}
