//! Where every atomic, fence and lock of this crate comes from.
//!
//! Lock-free code imports from here and from nowhere else, so that the same source that ships also
//! runs in loom, which tries every interleaving and every stale value the memory model allows:
//! `RUSTFLAGS="--cfg loom" cargo test -p cenote --release --lib loom`. loom is a dev-dependency,
//! hence the switch asks for `test` too. Names are added to both lists as code needs them.

#![cfg_attr(not(target_os = "linux"), allow(unused_imports, reason = "pools are on Linux only"))]

pub(crate) mod barrier;
pub(crate) mod biased;
pub(crate) mod cache;
#[cfg(not(all(test, loom)))]
pub(crate) mod guarded;
pub(crate) mod lock;

#[cfg(target_os = "linux")]
pub(crate) use crate::sync::barrier::prepare as prepare_barrier;
#[cfg(target_os = "linux")]
pub(crate) use crate::sync::biased::{Biased, BiasedGuard, put_behind};
#[cfg(target_os = "linux")]
pub(crate) use crate::sync::cache::{fetch_to_read, fetch_to_write};
pub(crate) use crate::sync::lock::{Lock, LockGuard, pause};

#[cfg(all(test, loom))]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

/// A `SeqCst` fence right after an atomic read-modify-write of this thread.
///
/// On x86 such an instruction is a full barrier by itself (Intel SDM vol. 3A, 9.2.3.9, "loads and stores
/// are not reordered with locked instructions"), so only the compiler has to be told; a second barrier would
/// cost as much again.
#[cfg(target_os = "linux")]
#[inline]
pub(crate) fn fence_after_rmw() {
    if cfg!(all(target_arch = "x86_64", not(loom), not(miri))) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
