//! Releasing the interpreter's lock (GIL) for work that takes long, so that other Python threads run meanwhile.
//!
//! Quick work keeps the lock: taking it again can take longer than copying a few bytes.

use pyo3::prelude::*;

/// Copies of at least this many bytes release the lock: they take some hundred microseconds.
const LARGE: usize = 1 << 20;

/// Calls `f`, which reads or writes `bytes` bytes. Releases the lock meanwhile if they are many.
pub(crate) fn detach_if_large<T: Send>(
    py: Python<'_>,
    bytes: usize,
    f: impl FnOnce() -> T + Send,
) -> T {
    detach_if(py, is_large(bytes), f)
}

/// Whether copying this many bytes is worth releasing the lock.
pub(crate) fn is_large(bytes: usize) -> bool {
    bytes >= LARGE
}

/// Calls `f`, and releases the lock meanwhile if `is_slow`.
pub(crate) fn detach_if<T: Send>(py: Python<'_>, is_slow: bool, f: impl FnOnce() -> T + Send) -> T {
    if is_slow { py.detach(f) } else { f() }
}
