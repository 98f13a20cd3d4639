//! A cell that the interpreter's lock (GIL) protects, so that it needs no lock itself.
//!
//! # Contract
//! Each method takes a `Python` token, which proves that the calling thread holds the GIL. The module declares
//! that it needs the GIL, so a free-threaded Python turns it on; where that is forbidden, importing the module
//! fails.
#![allow(unsafe_code, reason = "Rust does not see that the GIL is a lock")]

use std::cell::Cell;
use std::sync::Arc;

use pyo3::Python;

/// A shared value, until it is taken out. A thread that forks holds the GIL, so a forked child never finds the
/// cell half changed.
pub(crate) struct GilCell<T: ?Sized>(Cell<Option<Arc<T>>>);

// SAFETY: only the methods below reach the cell. Their callers hold the GIL until the methods return:
// counting a reference and moving a pointer release it nowhere. So one thread at a time uses the cell, and
// because the GIL is a lock, each thread sees what the one before it wrote. The value may be used by any
// thread, as `Arc` requires.
unsafe impl<T: ?Sized + Send + Sync> Sync for GilCell<T> {}

impl<T: ?Sized> GilCell<T> {
    pub(crate) fn new(value: Arc<T>) -> GilCell<T> {
        GilCell(Cell::new(Some(value)))
    }

    /// The value; `None` after it was taken out.
    #[inline]
    pub(crate) fn get(&self, _: Python<'_>) -> Option<Arc<T>> {
        let value = self.0.take();
        let shared = value.clone();
        self.0.set(value);
        shared
    }

    /// Takes the value out for good; `None` if it was taken out before.
    pub(crate) fn take(&self, _: Python<'_>) -> Option<Arc<T>> {
        self.0.take()
    }
}
