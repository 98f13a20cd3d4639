//! Where every atomic, fence and lock of this crate comes from.
//!
//! Lock-free code imports from here and from nowhere else, so that the same source that ships also
//! runs in loom, which tries every interleaving and every stale value the memory model allows:
//! `RUSTFLAGS="--cfg loom" cargo test -p cenote --release --lib --features gl loom`.
//!
//! | file | what it has |
//! |---|---|
//! | `atomic` | atomics and fences: std's, or loom's in a model |
//! | `statics` | std's atomics for `static` items, which no model covers |
//! | `lock` | [`Lock`]: a spinning lock for sections of a few instructions |
//! | `biased` | [`Biased`]: the same, nearly free for the one thread that takes it most |
//! | `barrier` | the asymmetric fence that `biased` is built on |
//! | `guarded` | the value behind a lock, and its guard |
//! | `cache` | prefetch hints |

#![allow(unused_imports, reason = "which names are used depends on platform and features")]

pub(crate) mod atomic;
pub(crate) mod barrier;
pub(crate) mod biased;
pub(crate) mod cache;
#[cfg(not(all(test, loom)))]
pub(crate) mod guarded;
pub(crate) mod lock;
pub(crate) mod statics;

pub(crate) use crate::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, fence,
    spin_loop, yield_now,
};
#[cfg(target_os = "linux")]
pub(crate) use crate::sync::barrier::prepare as prepare_barrier;
#[cfg(target_os = "linux")]
pub(crate) use crate::sync::biased::{Biased, BiasedGuard, put_behind};
#[cfg(target_os = "linux")]
pub(crate) use crate::sync::cache::{fetch_to_read, fetch_to_write};
pub(crate) use crate::sync::lock::{Lock, LockGuard};
pub(crate) use crate::sync::statics::{StaticBool, StaticPtr, StaticU32, StaticU64};
