//! The primitives that lock-free code is made of: std's in the library, loom's in a model.
//!
//! loom is a dev-dependency, so both `test` and `loom` must be set to switch. Add a name to both lists when
//! code needs it.

#![allow(unused_imports, reason = "which names are used depends on platform and features")]

#[cfg(all(test, loom))]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
pub(crate) use std::sync::atomic::compiler_fence;

#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
