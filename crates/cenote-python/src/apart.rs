//! Doing without the interpreter what may take long: others run meanwhile.
//!
//! What is quick keeps it, for getting it back can take longer than any copy of a few bytes.

use pyo3::prelude::*;

/// From how many bytes on copying takes long: some hundred microseconds.
const LARGE: usize = 1 << 20;

/// Calls `f`, which touches so many bytes.
pub(crate) fn if_large<T: Send>(py: Python<'_>, bytes: usize, f: impl FnOnce() -> T + Send) -> T {
    when(py, is_large(bytes), f)
}

/// Whether touching so many bytes takes long.
pub(crate) fn is_large(bytes: usize) -> bool {
    bytes >= LARGE
}

/// Calls `f`, which may take long or not.
pub(crate) fn when<T: Send>(py: Python<'_>, long: bool, f: impl FnOnce() -> T + Send) -> T {
    if long { py.detach(f) } else { f() }
}
