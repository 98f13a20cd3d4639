//! Times as Python passes them: a number of seconds.

use std::time::Duration;

use pyo3::prelude::*;

use crate::args::integer::optional;
use crate::runtime::error::{Result, bad_argument};
use crate::runtime::py_call;

/// A number of seconds.
pub(crate) fn seconds(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    py_call::float(given)
}

/// A number of seconds, or `None`.
pub(crate) fn optional_seconds(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    optional(given, seconds)
}

/// The duration of a number of seconds. Fails for a negative number and NaN.
pub(crate) fn duration(seconds: f64) -> Result<Duration> {
    // 30 billion years: forever.
    if seconds > 1e18 {
        return Ok(Duration::MAX);
    }
    let bad = |_| bad_argument(format!("a timeout must be 0 seconds or more, not {seconds}"));
    Duration::try_from_secs_f64(seconds).map_err(bad)
}
