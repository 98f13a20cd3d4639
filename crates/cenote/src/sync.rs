//! Where every atomic, fence and lock of this crate comes from.
//!
//! Lock-free code imports from here and from nowhere else, so that the same source that ships also
//! runs in loom, which tries every interleaving and every stale value the memory model allows:
//! `RUSTFLAGS="--cfg loom" cargo test -p cenote --release --lib loom`. loom is a dev-dependency,
//! hence the switch asks for `test` too. Names are added to both lists as code needs them.

#![cfg_attr(not(target_os = "linux"), allow(unused_imports, reason = "pools are on Linux only"))]

mod lock;

pub(crate) use lock::{Lock, LockGuard, pause};

#[cfg(all(test, loom))]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
