//! A lock for sections that most of the time are a few instructions, in which no caller's code runs.
//!
//! Leaving is a plain store, where a lock that wakes its waiters needs an atomic exchange: half the
//! price of taking and leaving a lock that nobody else wants. Whoever finds it taken looks again,
//! soon at first, and then sleeps in between: a real-time thread must not starve the holder.
//!
//! # Contract
//! The latch has one holder, from the exchange that took it to the store that frees it.
#![allow(unsafe_code, reason = "promises that there is one holder at a time")]

/// In models of what stands on it, loom's own lock takes its place: the latch has a model of its own.
#[cfg(all(test, loom))]
pub(crate) use modelled::{Lock, LockGuard};

use std::time::Duration;

use crate::intervals::{LOCK_POLL, LOCK_SPINS, LOCK_YIELDS};
use crate::sync::atomic::{AtomicU32, Ordering, spin_loop, yield_now};
#[cfg(not(all(test, loom)))]
use crate::sync::guarded::{Guard, Guarded, Hold};

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// The bare lock.
#[derive(Debug)]
pub(crate) struct Latch(AtomicU32);

#[cfg_attr(all(test, loom), allow(dead_code))]
impl Latch {
    #[cfg(not(all(test, loom)))]
    pub(crate) const fn new() -> Latch {
        Latch(AtomicU32::new(FREE))
    }

    /// loom's atomics are not constants.
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Latch {
        Latch(AtomicU32::new(FREE))
    }

    #[inline]
    pub(crate) fn take(&self) {
        if !self.try_take() {
            self.wait();
        }
    }

    #[inline]
    fn try_take(&self) -> bool {
        // Acquire: what the last holder wrote is seen.
        self.0.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0_u32;
        while self.0.load(Ordering::Relaxed) == TAKEN || !self.try_take() {
            looks = looks.saturating_add(1);
            pause(looks);
        }
    }

    #[inline]
    pub(crate) fn free(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

/// Waits the longer, the more looks there were.
pub(super) fn pause(looks: u32) {
    if cfg!(all(test, loom)) || (LOCK_SPINS..LOCK_SPINS + LOCK_YIELDS).contains(&looks) {
        yield_now();
    } else if looks < LOCK_SPINS {
        spin_loop();
    } else {
        std::thread::sleep(LOCK_POLL);
    }
}

// SAFETY: from the exchange that took the latch to the store that frees it nobody else takes it.
#[cfg(not(all(test, loom)))]
unsafe impl Hold for Latch {
    type Way = ();

    #[inline]
    fn take(&self) {
        Latch::take(self);
    }

    #[inline]
    fn leave(&self, (): ()) {
        self.free();
    }
}

/// A value behind a latch.
#[cfg(not(all(test, loom)))]
pub(crate) type Lock<T> = Guarded<Latch, T>;

/// The right to the value; ends with the guard.
#[cfg(not(all(test, loom)))]
pub(crate) type LockGuard<'a, T> = Guard<'a, Latch, T>;

#[cfg(not(all(test, loom)))]
impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Guarded::over(Latch::new(), value)
    }
}

#[cfg(all(test, loom))]
mod modelled {
    use loom::sync::{Mutex, MutexGuard};

    pub(crate) type LockGuard<'a, T> = MutexGuard<'a, T>;

    #[derive(Debug)]
    pub(crate) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Lock<T> {
            Lock(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> LockGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::{model, thread};

    use super::*;

    struct Counter {
        latch: Latch,
        count: UnsafeCell<u32>,
    }

    // SAFETY: the threads of the model look at the count while they have the latch. That this is
    // enough is what loom checks.
    unsafe impl Sync for Counter {}

    impl Counter {
        fn increment(&self) -> u32 {
            self.latch.take();
            let count = self.count.with_mut(|count| {
                // SAFETY: the pointer is good for the length of the closure.
                let count = unsafe { &mut *count };
                *count += 1;
                *count
            });
            self.latch.free();
            count
        }
    }

    #[test]
    fn a_latch_has_one_holder_who_sees_what_the_last_one_did() {
        model(|| {
            let counter = Arc::new(Counter { latch: Latch::new(), count: UnsafeCell::new(0) });
            let other = Arc::clone(&counter);
            let other = thread::spawn(move || other.increment());
            let (mine, theirs) = (counter.increment(), other.join().unwrap());
            assert_eq!((mine + theirs, counter.increment()), (3, 3));
        });
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_wait_for_each_other_lose_no_update() {
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }

    #[test]
    fn whoever_waits_long_gets_it_all_the_same() {
        let lock = Lock::new(1);
        let guard = lock.lock();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| *lock.lock());
            std::thread::sleep(Duration::from_millis(5));
            drop(guard);
            assert_eq!(waiter.join().unwrap(), 1);
        });
    }
}
