//! What all pools of the process share: the registry of their caches, the decay thread, the shard
//! number of each thread, and the behaviour at a fork.
//!
//! **Decay.** One thread frees idle blocks. It searches each cache that retains something once per
//! idle time of its pool, and frees the blocks that were not used between two searches. When no cache
//! retains anything it sleeps until one does. A cache asks for the search when it retains its first
//! block, which is not on the fast path.
//!
//! **Fork.** A child has one thread and a copy of everything else. A lock that another thread held
//! would never be released in the child. So the thread that forks takes all locks of this module
//! first, in the usual order: registry, ledger, shards. It releases them in the parent and in the
//! child. The child then has a copy of every pool with the retained blocks. Buffers of other threads
//! stay counted as in use there. The first thread of the child that uses a pool starts a decay
//! thread. (A signal handler that forks while it interrupts a pool waits for itself, as in malloc.)
#![cfg_attr(all(test, loom), allow(dead_code, unused_imports))]

use std::cell::Cell;
use std::io;
#[cfg(target_os = "linux")]
use std::sync::mpsc::sync_channel;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::amount::Amount;
use super::free_cache::{FreeCache, SHARDS};
use super::settings::Settings;
use crate::intervals::IDLE_SEARCH;
use crate::sync::{Lock, LockGuard};

/// The stack of the decay thread, which only unmaps memory.
const STACK: usize = 256 << 10;

/// All caches of the process, and the decay thread.
#[derive(Debug)]
pub(in crate::host_pool) struct Registry {
    caches: Vec<Registered>,
    decay_thread: Option<Thread>,
    /// How many pools were opened.
    pools: u64,
    /// How many threads were numbered.
    threads: usize,
}

#[derive(Debug)]
struct Registered {
    cache: &'static FreeCache,
    /// How often it is searched for idle blocks, and when next.
    idle: Option<Duration>,
    due: Option<Instant>,
}

/// What the decay thread does next.
#[derive(Debug)]
enum Next {
    Search(&'static FreeCache),
    Sleep(Duration),
    /// Sleeps until a cache wakes it.
    Park,
}

impl Registry {
    const fn new() -> Registry {
        Registry { caches: Vec::new(), decay_thread: None, pools: 0, threads: 0 }
    }

    #[cfg(all(test, loom))]
    pub(super) fn caches(&self) -> usize {
        self.caches.len()
    }

    fn entry(&mut self, cache: &'static FreeCache) -> Option<&mut Registered> {
        self.caches.iter_mut().find(|entry| std::ptr::eq(entry.cache, cache))
    }

    /// Schedules the next search of a cache, if there is none yet.
    fn schedule(&mut self, cache: &'static FreeCache, now: Instant) {
        if let Some(entry) = self.entry(cache) {
            entry.schedule(now);
        }
    }

    /// The cache that is due, which has no next search then; or how long there is none.
    fn next(&mut self, now: Instant) -> Next {
        let earliest = self.caches.iter_mut().filter(|entry| entry.due.is_some());
        let Some(entry) = earliest.min_by_key(|entry| entry.due) else { return Next::Park };
        match entry.due {
            Some(due) if now < due => Next::Sleep(due - now),
            _ => {
                entry.due = None;
                Next::Search(entry.cache)
            }
        }
    }

    /// Starts the decay thread if a search is scheduled and there is no thread. Returns the thread;
    /// none if it cannot be started. Then the next call tries again.
    fn decay_thread(&mut self) -> Option<Thread> {
        let scheduled = self.caches.iter().any(|entry| entry.due.is_some());
        if self.decay_thread.is_none() && scheduled {
            self.decay_thread = spawn().ok();
        }
        self.decay_thread.clone()
    }
}

impl Registered {
    fn schedule(&mut self, now: Instant) {
        let idle = self.idle.map(|idle| idle.max(IDLE_SEARCH));
        // A time that this machine does not reach has no instant, and needs no search.
        self.due = self.due.or_else(|| idle.and_then(|idle| now.checked_add(idle)));
    }
}

#[cfg(not(all(test, loom)))]
static REGISTRY: Lock<Registry> = Lock::new(Registry::new());

#[cfg(all(test, loom))]
loom::lazy_static! {
    /// loom's locks must not outlive a run: each run has a registry.
    static ref REGISTRY: Lock<Registry> = Lock::new(Registry::new());
}

/// Locks the registry. While it is locked the process does not fork.
pub(in crate::host_pool) fn registry() -> LockGuard<'static, Registry> {
    REGISTRY.lock()
}

/// A cache for a new pool: one that no pool and no buffer uses any more, or a new one. Also returns
/// the number of the pool, which no other pool of the process has.
pub(super) fn open_cache(cap: Amount, settings: &Settings) -> (&'static FreeCache, u64) {
    #[cfg(all(target_os = "linux", not(all(test, loom))))]
    fork::HOOKS.install();
    let mut registry = registry();
    let unused = registry.caches.iter().position(|entry| entry.cache.is_free());
    let index = unused.unwrap_or_else(|| {
        let cache = Box::leak(Box::new(FreeCache::new()));
        registry.caches.push(Registered { cache, idle: None, due: None });
        registry.caches.len() - 1
    });
    let entry = &mut registry.caches[index];
    (entry.idle, entry.due) = (settings.idle, None);
    let cache = entry.cache;
    cache.open(cap, settings);
    registry.pools += 1;
    (cache, registry.pools)
}

/// Has the decay thread search a cache. False if there is no such thread and none can be started.
#[cfg(not(all(test, loom)))]
pub(super) fn watch(cache: &'static FreeCache) -> bool {
    let mut registry = registry();
    registry.schedule(cache, Instant::now());
    let Some(thread) = registry.decay_thread() else { return false };
    thread.unpark();
    true
}

/// Cancels the search of a cache whose pool is dropped.
pub(super) fn unwatch(cache: &'static FreeCache) {
    if let Some(entry) = registry().entry(cache) {
        entry.due = None;
    }
}

/// A model searches its cache itself.
#[cfg(all(test, loom))]
pub(super) fn watch(_cache: &'static FreeCache) -> bool {
    true
}

/// Starts the thread, and waits until it has sent its handle.
#[cfg(target_os = "linux")]
fn spawn() -> io::Result<Thread> {
    let (send, receive) = sync_channel(1);
    crate::sys::thread::start(c"cenote-decay", STACK, move || {
        let _ = send.send(thread::current());
        run();
    })?;
    receive.recv().map_err(io::Error::other)
}

#[cfg(not(target_os = "linux"))]
fn spawn() -> io::Result<Thread> {
    let thread = thread::Builder::new().name("cenote-decay".into()).stack_size(STACK);
    thread.spawn(run).map(|handle| handle.thread().clone())
}

fn run() {
    loop {
        let next = registry().next(Instant::now());
        match next {
            Next::Search(cache) => {
                if cache.decay() {
                    registry().schedule(cache, Instant::now());
                }
            }
            Next::Sleep(time) => thread::park_timeout(time),
            Next::Park => thread::park(),
        }
    }
}

const UNNUMBERED: usize = usize::MAX;

thread_local! {
    // Has no destructor, so reading it is one load, and possible until the thread has ended.
    static SHARD: Cell<usize> = const { Cell::new(UNNUMBERED) };
}

/// The shard of this thread, the same in every cache. Threads are numbered in turn.
#[inline]
pub(super) fn thread_shard() -> usize {
    match SHARD.get() {
        UNNUMBERED => number_thread(),
        shard => shard,
    }
}

#[cold]
fn number_thread() -> usize {
    let mut registry = registry();
    let shard = registry.threads % SHARDS;
    registry.threads = registry.threads.wrapping_add(1);
    SHARD.set(shard);
    // In a forked child the decay thread may have to be started.
    registry.decay_thread();
    shard
}

#[cfg(all(target_os = "linux", not(all(test, loom))))]
mod fork {
    use std::cell::Cell;
    use std::mem::{ManuallyDrop, forget};
    use std::time::Instant;

    use super::{Registry, SHARD, UNNUMBERED, registry};
    use crate::host_pool::retain::free_cache::Frozen;
    use crate::sync::LockGuard;
    use crate::sys::fork::Hooks;

    pub(super) static HOOKS: Hooks = Hooks::new(prepare, parent, child);

    /// All locks of all pools.
    struct Locks {
        caches: Vec<Frozen>,
        registry: LockGuard<'static, Registry>,
    }

    thread_local! {
        /// The locks, while this thread forks. Never dropped by the end of a thread: it has no
        /// destructor, so it exists until the thread has ended.
        static LOCKS: Cell<Option<ManuallyDrop<Locks>>> = const { Cell::new(None) };
    }

    extern "C" fn prepare() {
        // Hooks that were installed twice run twice. The second run finds the locks taken.
        let locks = LOCKS.take().unwrap_or_else(|| {
            let registry = registry();
            let caches = registry.caches.iter().map(|entry| entry.cache.freeze()).collect();
            ManuallyDrop::new(Locks { caches, registry })
        });
        LOCKS.set(Some(locks));
    }

    extern "C" fn parent() {
        drop(LOCKS.take().map(ManuallyDrop::into_inner));
    }

    extern "C" fn child() {
        let Some(mut locks) = LOCKS.take().map(ManuallyDrop::into_inner) else { return };
        // The child does not have the thread. The handle is not dropped: that may free memory, and
        // a child calls as little as possible here.
        forget(locks.registry.decay_thread.take());
        // A search that the parent's thread had begun, or was about to be asked for, is not in `due`.
        let now = Instant::now();
        locks.registry.caches.iter_mut().for_each(|entry| entry.schedule(now));
        // The next use of a pool starts a decay thread.
        SHARD.set(UNNUMBERED);
        let Locks { mut caches, registry } = locks;
        caches.clear();
        forget(caches);
        drop(registry);
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests;
