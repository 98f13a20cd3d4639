use std::sync::Barrier;
use std::thread::sleep;

use super::*;
use crate::host_pool::BufferPool;
use crate::host_pool::retain::free_cache::FreeCache;

const IDLE: Duration = Duration::from_millis(5);

/// A pool with one retained block, which the decay thread does not search.
fn unwatched() -> (BufferPool, &'static FreeCache) {
    let pool = BufferPool::options().idle_after(Some(Duration::MAX)).build();
    drop(pool.acquire::<u8>(1000).unwrap());
    let cache = pool.store().cache();
    (pool, cache)
}

fn is_scheduled(cache: &'static FreeCache) -> bool {
    registry().entry(cache).is_some_and(|entry| entry.due.is_some())
}

/// Takes a few milliseconds; a minute is for a busy machine.
fn within_a_minute(holds: impl Fn() -> bool) -> bool {
    (0..6000).any(|_| {
        sleep(Duration::from_millis(10));
        holds()
    })
}

// ---- caches ---------------------------------------------------------------------------------------

#[test]
fn a_cache_serves_the_next_pool_once_pool_and_buffers_are_gone() {
    let before = registry().caches.len();
    for round in 0..2000 {
        let pool = BufferPool::with_max_retained_bytes(64 * (round % 2));
        let (one, two) = (pool.acquire::<u8>(9).unwrap(), pool.acquire::<u8>(9).unwrap());
        thread::scope(|scope| {
            scope.spawn(move || drop(one));
            scope.spawn(move || drop(pool));
            drop(two.write_fn(|_| 0).detach());
        });
    }
    // This test uses one at a time, and the tests that run beside it a few.
    let after = registry().caches.len();
    assert!(after < before + 1000, "caches are not used again: {before} -> {after}");
}

#[test]
fn a_cache_is_not_given_to_the_next_pool_while_a_buffer_uses_it() {
    let old = BufferPool::unbounded();
    let (cache, buffer) = (old.store().cache(), old.acquire::<u8>(100).unwrap());
    drop(old);
    assert!(!cache.is_free());
    let next = BufferPool::unbounded();
    assert!(!std::ptr::eq(next.store().cache(), cache));
    drop(buffer);
    assert_eq!(next.stats().retained, 0);
}

#[test]
fn a_new_pool_with_an_old_cache_starts_at_zero() {
    let started = |pool: &BufferPool| pool.stats() == Default::default();
    for _ in 0..100 {
        let pool = BufferPool::unbounded();
        assert!(started(&pool));
        drop(pool.acquire::<u8>(1000).unwrap());
        pool.set_max_retained_bytes(500);
    }
}

// ---- shards of threads ----------------------------------------------------------------------------

fn shards_of(threads: usize) -> Vec<usize> {
    let barrier = Barrier::new(threads);
    let number = || {
        let shard = thread_shard();
        barrier.wait();
        shard
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(number)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

// Threads of other tests are numbered between these, so the bounds are generous. Two threads of 128
// would share a shard.
#[test]
fn few_threads_share_no_shard_and_many_share_them_evenly() {
    let mut shards = shards_of(8);
    shards.sort_unstable();
    shards.dedup();
    assert_eq!(shards.len(), 8);

    let mut threads = [0; SHARDS];
    shards_of(2 * SHARDS).into_iter().for_each(|shard| threads[shard] += 1);
    assert!(threads.iter().all(|&threads| threads <= 4), "{threads:?}");
}

// ---- decay ----------------------------------------------------------------------------------------

#[test]
fn blocks_that_are_not_used_between_two_searches_are_freed() {
    let (pool, cache) = unwatched();
    assert!(cache.decay());
    assert_eq!(pool.len(), 1);
    drop(pool.acquire::<u8>(1000).unwrap());
    drop(pool.acquire::<u8>(9000).unwrap());
    assert!(cache.decay());
    drop(pool.acquire::<u8>(9000).unwrap());
    assert!(cache.decay());
    assert_eq!((pool.len(), pool.stats().decays), (1, 1));
    assert!(!cache.decay());
    assert_eq!((pool.len(), pool.stats().decays), (0, 2));
}

#[test]
fn one_search_frees_many_blocks() {
    let (pool, cache) = unwatched();
    // One of them gets the retained block.
    drop((0..1000).map(|_| pool.acquire::<u8>(100).unwrap()).collect::<Vec<_>>());
    assert!(cache.decay() && !cache.decay());
    assert_eq!((pool.len(), pool.stats().decays), (0, 1000));
}

#[test]
fn a_block_in_use_does_not_decay_and_is_searched_for_when_it_returns() {
    let (pool, cache) = unwatched();
    let buffer = pool.acquire::<u8>(1000).unwrap();
    assert!(!cache.decay(), "nothing is retained");
    drop(buffer);
    assert_eq!(pool.len(), 1);
    assert!(cache.decay() && !cache.decay());
    assert!(pool.is_empty());
}

#[test]
fn a_search_is_due_after_the_idle_time_and_once() {
    let (_pool, cache) = unwatched();
    let now = Instant::now();
    let mut registry = Registry::new();
    assert!(matches!(registry.next(now), Next::Park));
    registry.caches.push(Registered { cache, idle: Some(IDLE), due: None });
    assert!(matches!(registry.next(now), Next::Park));
    registry.schedule(cache, now);
    registry.schedule(cache, now + IDLE);
    assert!(matches!(registry.next(now), Next::Sleep(time) if time == IDLE));
    assert!(matches!(registry.next(now + IDLE), Next::Search(_)));
    assert!(matches!(registry.next(now + IDLE), Next::Park));

    // Scheduled again while it is searched: the search that ends now changes nothing.
    registry.schedule(cache, now);
    registry.schedule(cache, now + IDLE);
    assert!(matches!(registry.next(now), Next::Sleep(time) if time == IDLE));

    registry.caches[0] = Registered { cache, idle: Some(Duration::MAX), due: None };
    registry.schedule(cache, now);
    assert!(matches!(registry.next(now), Next::Park));
    registry.caches[0].idle = Some(Duration::ZERO);
    registry.schedule(cache, now);
    assert!(matches!(registry.next(now), Next::Sleep(time) if time == IDLE_SEARCH));
}

#[test]
fn an_unused_pool_decays_and_is_not_searched_any_more() {
    let pool = BufferPool::options().idle_after(Some(IDLE)).build();
    let cache = pool.store().cache();
    assert!(!is_scheduled(cache));
    for _ in 0..2 {
        drop(pool.acquire::<u8>(1 << 20).unwrap());
        assert!(within_a_minute(|| pool.is_empty()));
        assert!(within_a_minute(|| !is_scheduled(cache)));
    }
    assert_eq!(pool.stats().decays, 2);
    // The whole cap can be used again.
    drop(pool.acquire::<u8>(64 << 20).unwrap());
    assert_eq!(pool.stats().rejects, 0);
}

#[test]
fn a_dropped_pool_is_not_searched_any_more() {
    // Held to the end: its cache must not become that of another test's pool.
    let buffer;
    let cache = {
        let idle = Some(Duration::from_secs(3600));
        let pool = BufferPool::options().idle_after(idle).build();
        buffer = pool.acquire::<u8>(100).unwrap();
        drop(pool.acquire::<u8>(100).unwrap());
        assert!(is_scheduled(pool.store().cache()));
        pool.store().cache()
    };
    assert!(!is_scheduled(cache));
    drop(buffer);
}

/// The signals that the thread blocks, a bit for each.
#[cfg(target_os = "linux")]
fn blocked_signals() -> Option<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut statuses =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
    let status = statuses.find(|status| status.starts_with("Name:\tcenote-decay\n"))?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(target_os = "linux")]
#[test]
fn the_decay_thread_receives_no_signals() {
    if std::env::var_os("CENOTE_TEST_EMULATED").is_some() {
        return println!("NOT AVAILABLE under emulation: the signals that a thread blocks");
    }
    let pool = BufferPool::options().idle_after(Some(Duration::from_secs(3600))).build();
    drop(pool.acquire::<u8>(100).unwrap());
    // The thread sets its name when it first runs.
    assert!(within_a_minute(|| blocked_signals().is_some()));
    let terminate = 1 << (libc::SIGTERM - 1);
    assert!(blocked_signals().is_some_and(|mask| mask & terminate != 0));
}

// ---- fork -----------------------------------------------------------------------------------------

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "fork")]
mod fork {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::channel;

    use super::*;

    /// Runs `work` in a forked child. Returns whether it returned true within a minute.
    fn child_succeeds(work: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls this crate and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let succeeded = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
            let code = i32::from(!succeeded);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) };
        }
        for _ in 0..6000 {
            let mut status = 0;
            // SAFETY: waits for a child of this process.
            match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
                0 => sleep(Duration::from_millis(10)),
                _ => return status == 0,
            }
        }
        // SAFETY: the child was not waited for yet, so the number is still its own.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: as above.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        false
    }

    /// The emulator cannot fork a process that has threads.
    fn emulated() -> bool {
        let emulated = std::env::var_os("CENOTE_TEST_EMULATED").is_some();
        if emulated {
            println!("NOT AVAILABLE under emulation: a forked child");
        }
        emulated
    }

    fn is_usable(pool: &BufferPool) -> bool {
        let hits = pool.stats().hits;
        drop(pool.acquire::<u8>(1000).unwrap());
        drop(pool.acquire::<u8>(1000).unwrap());
        pool.set_max_retained_bytes(1 << 20);
        let used = pool.stats().hits > hits;
        pool.clear();
        used && pool.is_empty()
    }

    /// Forks while another thread holds what `hold` returns.
    fn fork_while_held<G>(pool: &BufferPool, hold: impl FnOnce() -> G + Send) {
        let (held, is_held) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let guard = hold();
                held.send(()).unwrap();
                sleep(Duration::from_millis(50));
                drop(guard);
            });
            is_held.recv().unwrap();
            assert!(child_succeeds(|| is_usable(pool)));
        });
        assert!(is_usable(pool));
    }

    #[test]
    fn a_child_forked_while_a_thread_holds_the_locks_of_a_cache_can_use_the_pool() {
        if emulated() {
            return;
        }
        let pool = BufferPool::unbounded();
        drop(pool.acquire::<u8>(1000).unwrap());
        let cache = pool.store().cache();
        fork_while_held(&pool, || cache.freeze());
    }

    #[test]
    fn a_child_forked_while_a_thread_holds_the_registry_can_use_the_pool() {
        if emulated() {
            return;
        }
        fork_while_held(&BufferPool::unbounded(), registry);
    }

    #[test]
    fn the_child_of_a_child_that_used_no_pool_can_use_it() {
        if emulated() {
            return;
        }
        let pool = BufferPool::unbounded();
        assert!(child_succeeds(|| child_succeeds(|| is_usable(&pool))));
    }

    #[test]
    fn idle_memory_decays_in_a_child_too() {
        if emulated() {
            return;
        }
        let pool = BufferPool::options().idle_after(Some(IDLE)).build();
        drop(pool.acquire::<u8>(1 << 20).unwrap());
        let work = || {
            drop(pool.acquire::<u8>(1 << 20).unwrap());
            (0..6000).any(|_| {
                sleep(Duration::from_millis(10));
                pool.is_empty()
            })
        };
        assert!(child_succeeds(work));
    }
}
