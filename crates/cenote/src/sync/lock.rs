//! A lock for sections of a few instructions, in which no caller's code runs.
//!
//! Releasing it is a plain store. A lock that wakes its waiters needs an atomic exchange there, which doubles the cost
//! of an uncontended lock. A thread that finds the lock taken spins at first, then yields, then sleeps between two
//! looks: a waiter of real-time priority must not starve the holder.
//!
//! # Contract
//! The latch has one holder, from the exchange that took it to the store that releases it.
#![allow(unsafe_code, reason = "promises one holder at a time")]

/// In models of code that uses this lock, loom's mutex stands in for it. The latch has its own model below.
#[cfg(all(test, loom))]
pub(crate) use modelled::{Lock, LockGuard};

use std::time::Duration;

use crate::intervals::{LOCK_POLL, LOCK_SPINS, LOCK_YIELDS};
use crate::sync::atomic::{AtomicU32, Ordering, spin_loop, yield_now};
#[cfg(not(all(test, loom)))]
use crate::sync::guarded::{Guard, Guarded, RawLock};

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// The lock without a value.
#[derive(Debug)]
pub(crate) struct Latch(AtomicU32);

#[cfg_attr(all(test, loom), allow(dead_code))]
impl Latch {
    #[cfg(not(all(test, loom)))]
    pub(crate) const fn new() -> Latch {
        Latch(AtomicU32::new(FREE))
    }

    /// Not a constant: loom makes its atomics at run time.
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
        // Acquire, pairs with the Release of `release`: this thread sees what earlier holders wrote.
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
    pub(crate) fn release(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

/// Waits before the next look: longer, the more looks there were.
pub(super) fn pause(looks: u32) {
    if cfg!(all(test, loom)) || (LOCK_SPINS..LOCK_SPINS + LOCK_YIELDS).contains(&looks) {
        yield_now();
    } else if looks < LOCK_SPINS {
        spin_loop();
    } else {
        std::thread::sleep(LOCK_POLL);
    }
}

// SAFETY: between the exchange that takes the latch and the store that releases it, every other exchange fails. The
// Acquire of the next exchange pairs with the Release of that store.
#[cfg(not(all(test, loom)))]
unsafe impl RawLock for Latch {
    type Taken = ();

    #[inline]
    fn take(&self) {
        Latch::take(self);
    }

    #[inline]
    fn release(&self, (): ()) {
        Latch::release(self);
    }
}

/// A value behind a latch.
#[cfg(not(all(test, loom)))]
pub(crate) type Lock<T> = Guarded<Latch, T>;

/// Access to the value. Dropping it releases the lock.
#[cfg(not(all(test, loom)))]
pub(crate) type LockGuard<'a, T> = Guard<'a, Latch, T>;

#[cfg(not(all(test, loom)))]
impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Guarded::new_behind(Latch::new(), value)
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

    // SAFETY: the threads of the model use the count only while they hold the latch. loom checks that this suffices.
    unsafe impl Sync for Counter {}

    impl Counter {
        fn increment(&self) -> u32 {
            self.latch.take();
            let count = self.count.with_mut(|count| {
                // SAFETY: the pointer is valid while the closure runs.
                let count = unsafe { &mut *count };
                *count += 1;
                *count
            });
            self.latch.release();
            count
        }
    }

    #[test]
    fn a_latch_has_one_holder_that_sees_all_earlier_writes() {
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
    fn threads_that_contend_lose_no_update() {
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }

    #[test]
    fn a_thread_that_waits_until_it_sleeps_takes_the_lock() {
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
