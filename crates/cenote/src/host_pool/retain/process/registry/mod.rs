//! The registry of all caches of the process, the decay thread that it starts, and the shard number of
//! each thread.
#![cfg_attr(all(test, loom), allow(dead_code, unused_imports))]

use std::cell::Cell;
use std::io;
#[cfg(target_os = "linux")]
use std::sync::mpsc::sync_channel;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::host_pool::retain::amount::Amount;
#[cfg(all(target_os = "linux", not(all(test, loom))))]
use crate::host_pool::retain::free_cache::Frozen;
use crate::host_pool::retain::free_cache::{FreeCache, SHARDS};
use crate::host_pool::retain::settings::Settings;
use crate::intervals::IDLE_SEARCH;
use crate::sync::{Lock, LockGuard};

/// The stack of the decay thread, which only unmaps memory.
const STACK: usize = 256 << 10;

/// All caches of the process, and the decay thread.
#[derive(Debug)]
pub(crate) struct Registry {
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
    pub(crate) fn caches(&self) -> usize {
        self.caches.len()
    }

    /// A cache for a new pool: one that no pool and no buffer uses any more, or a new one. Also returns
    /// the number of the pool, which no other pool of the process has.
    pub(crate) fn open_cache(
        &mut self,
        cap: Amount,
        settings: &Settings,
    ) -> (&'static FreeCache, u64) {
        let unused = self.caches.iter().position(|entry| entry.cache.is_free());
        let index = unused.unwrap_or_else(|| {
            let cache = Box::leak(Box::new(FreeCache::new(watch)));
            self.caches.push(Registered { cache, idle: None, due: None });
            self.caches.len() - 1
        });
        let entry = &mut self.caches[index];
        (entry.idle, entry.due) = (settings.idle, None);
        entry.cache.open(cap, settings);
        self.pools += 1;
        (entry.cache, self.pools)
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

#[cfg(all(target_os = "linux", not(all(test, loom))))]
impl Registry {
    /// Takes the locks of all caches.
    pub(super) fn freeze(&self) -> Vec<Frozen> {
        self.caches.iter().map(|entry| entry.cache.freeze()).collect()
    }

    /// Changes the registry for a forked child, which does not have the decay thread.
    pub(crate) fn inherit(&mut self) {
        // The handle is not dropped: that may free memory, and a child calls as little as possible here.
        std::mem::forget(self.decay_thread.take());
        // A search that the parent's thread had begun, or that was about to be requested, is not in `due`.
        let now = Instant::now();
        self.caches.iter_mut().for_each(|entry| entry.schedule(now));
        // The next use of a pool starts a decay thread.
        SHARD.set(UNNUMBERED);
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
pub(crate) fn registry() -> LockGuard<'static, Registry> {
    REGISTRY.lock()
}

/// Has the decay thread search a cache. False if there is no such thread and none can be started.
#[cfg(not(all(test, loom)))]
fn watch(cache: &'static FreeCache) -> bool {
    let mut registry = registry();
    registry.schedule(cache, Instant::now());
    let Some(thread) = registry.decay_thread() else { return false };
    thread.unpark();
    true
}

/// Cancels the search of a cache whose pool is dropped.
pub(crate) fn unwatch(cache: &'static FreeCache) {
    if let Some(entry) = registry().entry(cache) {
        entry.due = None;
    }
}

/// A model searches its cache itself.
#[cfg(all(test, loom))]
fn watch(_cache: &'static FreeCache) -> bool {
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
pub(crate) fn thread_shard() -> usize {
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

#[cfg(not(loom))]
#[cfg(test)]
mod tests;
