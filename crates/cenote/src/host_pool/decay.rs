//! Decay: one thread frees what nobody uses.
//!
//! A pool that retains something is on the rota: it is looked at once in every idle time, and what
//! was not used between two looks is freed. A pool that retains nothing is not, and when the rota is
//! empty the thread sleeps until there is a reason to wake it. The thread starts with the first pool
//! that retains something. A pool that is dropped leaves the rota at once.
//!
//! Pools put themselves on the rota when they hand out credit for the first time (see
//! [`Store::look`]), which the fast paths never do: nobody pays for this while a pool is in use.
//!
//! A forked child has the rota but not the thread. The first thread of it that uses a pool starts
//! its own.
#![cfg_attr(all(test, loom), allow(dead_code, unused_imports))]

use std::io;
#[cfg(target_os = "linux")]
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::gate::{self, Entry};
use super::store::Store;
#[cfg(not(all(test, loom)))]
use crate::sync::Lock;

/// Nobody is looked at more often than this.
const SHORTEST: Duration = Duration::from_millis(1);

/// The thread only unmaps memory.
const STACK: usize = 256 << 10;

/// Pools to look at, and who does.
#[derive(Debug)]
struct Rota {
    turns: Vec<Turn>,
    thread: Option<Thread>,
}

/// A pool on the rota.
#[derive(Debug)]
struct Turn {
    store: Weak<Store>,
    idle: Duration,
    due: Instant,
    /// How often it was put here. It may be put here again while it is being taken off.
    calls: u64,
}

/// What the thread does next.
#[derive(Debug)]
enum Next {
    /// Looks at a pool, which had been put on the rota so often.
    Look(Weak<Store>, u64),
    Sleep(Duration),
    SleepForGood,
}

impl Rota {
    const fn new() -> Rota {
        Rota { turns: Vec::new(), thread: None }
    }

    fn put(&mut self, store: Weak<Store>, idle: Duration, now: Instant) {
        let idle = idle.max(SHORTEST);
        let known = self.turns.iter_mut().find(|turn| turn.store.ptr_eq(&store));
        match (known, now.checked_add(idle)) {
            (Some(turn), _) => turn.calls += 1,
            (None, Some(due)) => self.turns.push(Turn { store, idle, due, calls: 1 }),
            // Not in the life of this machine.
            (None, None) => {}
        }
    }

    /// The pool that is due, which is due again after its idle time; or how long there is none.
    fn next(&mut self, now: Instant) -> Next {
        let Some(turn) = self.turns.iter_mut().min_by_key(|turn| turn.due) else {
            return Next::SleepForGood;
        };
        if now < turn.due {
            return Next::Sleep(turn.due - now);
        }
        turn.due = now + turn.idle;
        Next::Look(turn.store.clone(), turn.calls)
    }

    /// Takes a pool off, unless it was put on again since it had been put on `calls` times.
    fn take_off(&mut self, store: &Weak<Store>, calls: u64) {
        self.turns.retain(|turn| turn.calls != calls || !turn.store.ptr_eq(store));
    }

    /// Takes off a pool that is being dropped.
    fn leave(&mut self, store: *const Store) {
        self.turns.retain(|turn| turn.store.as_ptr() != store);
    }
}

/// Looked at inside the gate only, or by a forked child.
#[cfg(not(all(test, loom)))]
static ROTA: Lock<Rota> = Lock::new(Rota::new());

/// Puts a pool on the rota. False if there can be no thread to look at it.
#[cfg(not(all(test, loom)))]
pub(super) fn put(store: &Arc<Store>, idle: Duration, inside: &Entry) -> bool {
    ROTA.lock().put(Arc::downgrade(store), idle, Instant::now());
    let awake = revive(inside);
    match &awake {
        Some(thread) => thread.unpark(),
        // It will come again.
        None => ROTA.lock().leave(Arc::as_ptr(store)),
    }
    awake.is_some()
}

/// In loom there is no rota: the model looks at its pool itself.
#[cfg(all(test, loom))]
pub(super) fn put(_store: &Arc<Store>, _idle: Duration, _inside: &Entry) -> bool {
    true
}

/// Takes a pool that is being dropped off the rota.
#[cfg(not(all(test, loom)))]
pub(super) fn leave(store: &Store) {
    let _inside = gate::enter();
    ROTA.lock().leave(store);
}

#[cfg(all(test, loom))]
pub(super) fn leave(_store: &Store) {}

/// Makes sure that somebody looks after the rota, if there is anything on it. Returns who.
#[cfg(not(all(test, loom)))]
pub(super) fn revive(_inside: &Entry) -> Option<Thread> {
    let mut rota = ROTA.lock();
    if rota.thread.is_none() && !rota.turns.is_empty() {
        // Without a thread there is no decay; the next pool to come here tries again.
        rota.thread = spawn().ok();
    }
    rota.thread.clone()
}

#[cfg(all(test, loom))]
pub(super) fn revive(_inside: &Entry) {}

/// Starts the thread, and waits until it has told who it is.
#[cfg(all(target_os = "linux", not(all(test, loom))))]
fn spawn() -> io::Result<Thread> {
    let (tell, told) = sync_channel(1);
    crate::sys::thread::start(c"cenote-decay", STACK, move || {
        let _ = tell.send(thread::current());
        run();
    })?;
    told.recv().map_err(io::Error::other)
}

#[cfg(all(not(target_os = "linux"), not(all(test, loom))))]
fn spawn() -> io::Result<Thread> {
    let thread = thread::Builder::new().name("cenote-decay".into()).stack_size(STACK);
    thread.spawn(run).map(|handle| handle.thread().clone())
}

#[cfg(not(all(test, loom)))]
fn run() {
    loop {
        match step(Instant::now()) {
            Next::Look(..) => {}
            Next::Sleep(time) => thread::park_timeout(time),
            Next::SleepForGood => thread::park(),
        }
    }
}

/// Looks at one pool, if one is due. Returns what there was to do.
#[cfg(not(all(test, loom)))]
fn step(now: Instant) -> Next {
    let next = {
        let _inside = gate::enter();
        ROTA.lock().next(now)
    };
    if let Next::Look(store, calls) = &next {
        let retains = store.upgrade().is_some_and(|store| store.look());
        if !retains {
            let _inside = gate::enter();
            ROTA.lock().take_off(store, *calls);
        }
    }
    next
}

/// A forked child does not have the thread.
#[cfg(all(target_os = "linux", not(all(test, loom))))]
pub(super) fn inherit(_inside: &Entry) {
    // Dropping it could free memory, which is not for a child that has just been forked.
    std::mem::forget(ROTA.lock().thread.take());
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::super::BufferPool;
    use super::*;

    const IDLE: Duration = Duration::from_millis(5);

    /// A pool that nobody but the test looks at, with one block retained.
    fn pool() -> (BufferPool, Arc<Store>) {
        let pool = BufferPool::options().idle_after(Some(Duration::MAX)).build();
        drop(pool.acquire::<u8>(1000).unwrap());
        let store = pool.store();
        (pool, store)
    }

    #[test]
    fn what_is_not_used_between_two_looks_is_freed() {
        let (pool, store) = pool();
        assert!(store.look());
        assert_eq!(pool.len(), 1);
        drop(pool.acquire::<u8>(1000).unwrap());
        drop(pool.acquire::<u8>(9000).unwrap());
        assert!(store.look());
        drop(pool.acquire::<u8>(9000).unwrap());
        assert!(store.look());
        assert_eq!((pool.len(), pool.stats().decays), (1, 1));
        assert!(!store.look());
        assert_eq!((pool.len(), pool.stats().decays), (0, 2));
    }

    #[test]
    fn many_blocks_decay_at_one_look() {
        let (pool, store) = pool();
        // One of them gets the block that is there.
        drop((0..1000).map(|_| pool.acquire::<u8>(100).unwrap()).collect::<Vec<_>>());
        assert!(store.look() && !store.look());
        assert_eq!((pool.len(), pool.stats().decays), (0, 1000));
    }

    #[test]
    fn a_block_in_use_does_not_decay_and_is_noticed_when_it_returns() {
        let (pool, store) = pool();
        let buffer = pool.acquire::<u8>(1000).unwrap();
        assert!(!store.look(), "nothing is retained");
        drop(buffer);
        assert_eq!(pool.len(), 1);
        assert!(store.look() && !store.look());
        assert!(pool.is_empty());
    }

    #[test]
    fn a_rota_looks_in_turn_and_ends() {
        let (_one, store) = pool();
        let (now, weak) = (Instant::now(), Arc::downgrade(&store));
        let mut rota = Rota::new();
        assert!(matches!(rota.next(now), Next::SleepForGood));
        rota.put(weak.clone(), IDLE, now);
        rota.put(weak.clone(), IDLE, now);
        assert_eq!(rota.turns.len(), 1);
        assert!(matches!(rota.next(now), Next::Sleep(time) if time == IDLE));
        assert!(matches!(rota.next(now + IDLE), Next::Look(_, 2)));
        assert!(matches!(rota.next(now + IDLE), Next::Sleep(time) if time == IDLE));

        // Put on again while it was looked at: it stays.
        rota.put(weak.clone(), IDLE, now);
        rota.take_off(&weak, 2);
        assert_eq!(rota.turns.len(), 1);
        rota.take_off(&weak, 3);
        assert!(matches!(rota.next(now + 9 * IDLE), Next::SleepForGood));

        rota.put(weak.clone(), Duration::MAX, now);
        assert!(rota.turns.is_empty());
        rota.put(weak, Duration::ZERO, now);
        assert!(matches!(rota.next(now), Next::Sleep(time) if time == SHORTEST));
    }

    fn is_on_rota(store: &Arc<Store>) -> bool {
        let _inside = gate::enter();
        ROTA.lock().turns.iter().any(|turn| turn.store.ptr_eq(&Arc::downgrade(store)))
    }

    /// Generous: it takes a few milliseconds.
    fn within_a_minute(holds: impl Fn() -> bool) -> bool {
        (0..6000).any(|_| {
            sleep(Duration::from_millis(10));
            holds()
        })
    }

    #[test]
    fn a_pool_that_nobody_uses_any_more_decays_and_is_left_alone_then() {
        let pool = BufferPool::options().idle_after(Some(IDLE)).build();
        let store = pool.store();
        assert!(!is_on_rota(&store));
        for _ in 0..2 {
            drop(pool.acquire::<u8>(1 << 20).unwrap());
            assert!(within_a_minute(|| pool.is_empty()));
            assert!(within_a_minute(|| !is_on_rota(&store)));
        }
        assert_eq!(pool.stats().decays, 2);
        // Its whole cap can be used again.
        drop(pool.acquire::<u8>(64 << 20).unwrap());
        assert_eq!(pool.stats().rejects, 0);
    }

    #[test]
    fn a_pool_that_is_gone_leaves_the_rota_at_once() {
        let pool = BufferPool::options().idle_after(Some(Duration::from_secs(3600))).build();
        drop(pool.acquire::<u8>(100).unwrap());
        let weak = Arc::downgrade(&pool.store());
        assert!(is_on_rota(&pool.store()));
        drop(pool);
        let _inside = gate::enter();
        assert!(!ROTA.lock().turns.iter().any(|turn| turn.store.ptr_eq(&weak)));
    }

    /// The signals that the thread blocks, a bit for each.
    #[cfg(target_os = "linux")]
    fn blocked_signals() -> Option<u64> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let mut statuses = tasks
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
        let status = statuses.find(|status| status.starts_with("Name:\tcenote-decay\n"))?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_thread_is_sent_no_signals() {
        if std::env::var_os("CENOTE_TEST_EMULATED").is_some() {
            return println!("NOT AVAILABLE under emulation: the signals that a thread blocks");
        }
        let pool = BufferPool::options().idle_after(Some(Duration::from_secs(3600))).build();
        drop(pool.acquire::<u8>(100).unwrap());
        // It names itself when it runs first.
        assert!(within_a_minute(|| blocked_signals().is_some()));
        let terminate = 1 << (libc::SIGTERM - 1);
        assert!(blocked_signals().is_some_and(|mask| mask & terminate != 0));
    }
}
