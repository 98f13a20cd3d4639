//! What is looked at only by whoever holds the interpreter, without a lock of its own.
//!
//! # Contract
//! Whoever asks shows the token that one thread at a time has: the module declares that it needs the
//! interpreter's lock, so a Python that can do without turns it on, and is not imported where that was forbidden.
#![allow(unsafe_code, reason = "the interpreter's lock is a lock that Rust does not know")]

use std::cell::Cell;
use std::sync::Arc;

use pyo3::Python;

/// Something shared, until it is taken out. Whoever forks holds the interpreter: so a child finds it whole.
pub(crate) struct Attached<T: ?Sized>(Cell<Option<Arc<T>>>);

// SAFETY: the cell is reached only by the methods below, whose callers have the interpreter until they return:
// counting a reference and moving a pointer let go of it nowhere. It is handed from one thread to the next by a
// lock, so what one has done the next one sees. What is in the cell may be used by any thread, as `Arc` asks.
unsafe impl<T: ?Sized + Send + Sync> Sync for Attached<T> {}

impl<T: ?Sized> Attached<T> {
    pub(crate) fn new(value: Arc<T>) -> Attached<T> {
        Attached(Cell::new(Some(value)))
    }

    /// What is there, unless it was taken out.
    #[inline]
    pub(crate) fn get(&self, _: Python<'_>) -> Option<Arc<T>> {
        let value = self.0.take();
        let shared = value.clone();
        self.0.set(value);
        shared
    }

    /// Takes out what is there, for good.
    pub(crate) fn take(&self, _: Python<'_>) -> Option<Arc<T>> {
        self.0.take()
    }
}
