//! What all pools of the process share: the registry of their caches, the decay thread, the shard
//! number of each thread, and the behaviour at a fork.
//!
//! **Decay.** One thread frees idle blocks. It searches each cache that retains something once per
//! idle time of its pool, and frees the blocks that were not used between two searches. When no cache
//! retains anything it sleeps until one does. A cache requests the search when it retains its first
//! block, which is not on the fast path.
//!
//! **Fork.** A child has one thread and a copy of everything else. A lock that another thread held
//! would never be released in the child. So the thread that forks takes all locks of this module
//! first, in the usual order: registry, ledger, shards. It releases them in the parent and in the
//! child. The child then has a copy of every pool with the retained blocks. Buffers of other threads
//! stay counted as in use there. The first thread of the child that uses a pool starts a decay
//! thread. (A signal handler that forks while it interrupts a pool waits for itself, as in malloc.)

#[cfg(all(target_os = "linux", not(all(test, loom))))]
mod fork;
mod registry;

use super::amount::Amount;
use super::free_cache::FreeCache;
use super::settings::Settings;

pub(crate) use registry::{registry, thread_shard, unwatch};

/// A cache for a new pool, and the number of the pool, which no other pool of the process has.
pub(super) fn open_cache(cap: Amount, settings: &Settings) -> (&'static FreeCache, u64) {
    #[cfg(all(target_os = "linux", not(all(test, loom))))]
    fork::HOOKS.install();
    registry().open_cache(cap, settings)
}
