//! A lock that one thread takes nearly always: that thread takes it without an atomic exchange.
//!
//! Most of the time one thread sends on a topic and one thread receives from it, but any thread may do so at any
//! moment. An uncontended lock costs an atomic exchange, which waits for every earlier store of its thread, and a
//! message passes several locks. (Kawachiya, Koseki, Onodera, "Lock Reservation", OOPSLA 2002. The asymmetric fence of
//! Dice, Moir, Scherer, "Quickly Reacquirable Locks", 2003, is membarrier(2) here.)
//!
//! What it gains on rows of `compare`: the same row takes longer by this much with another lock in its place.
//!
//! | row | plain latch | `std::sync::Mutex` |
//! |---|---|---|
//! | `pool/alloc + drop` | 104 % | 220 % |
//! | `growth/send + recv a u64` | 48 % | 92 % |
//! | `fan-out/send 1080p to 1` | 27 % | 56 % |
//!
//! ```text
//!   the biased thread                        any other thread
//!   B1  inside := 1                          L1  take the latch
//!   B2  light fence                          L2  biased := 0 (revoke)
//!   B3  biased? else leave, take the latch   L3  heavy fence
//!   B4  inside := 0                          L4  wait until inside is 0
//!                                            L5  release the latch
//! ```
//!
//! A thread that takes the latch often enough in a row becomes the biased thread when it releases it. Only one thread
//! ever is, for the life of the lock, though with pauses: a thread whose bias was just revoked may still do B1 at any
//! time, and must not do that to a word that another thread uses. After each revocation the thread must take the latch
//! more often in a row, so a lock that threads share stays a latch.
//!
//! # Contract
//! The lock has one holder: from B3 to B4, or from L4 to L5. The fences B2 and L3 are totally ordered: either B3 sees
//! L2, or L4 sees B1. Only the biased thread itself sets the bias again, and it holds the latch then, so no thread is
//! between L2 and L5. A thread that holds the lock and takes it again waits for ever, as with any lock, so it does not
//! do B1 twice.
#![cfg(target_os = "linux")]
#![allow(
    unsafe_code,
    reason = "promises one holder at a time; puts a counted reference behind a lock that it keeps alive"
)]

/// In models of code that uses this lock, a lock of loom stands in for it. The bias has its own model below.
#[cfg(all(test, loom))]
pub(crate) use crate::sync::lock::{Lock as Biased, LockGuard as BiasedGuard};

use std::cell::Cell;
use std::sync::Arc;

use crate::intervals::{BIAS_AFTER, BIAS_AFTER_AT_MOST};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::barrier;
#[cfg(not(all(test, loom)))]
use crate::sync::guarded::{Guard, Guarded, RawLock};
use crate::sync::lock::{Latch, pause};
use crate::sync::statics::StaticU64;

const NO_THREAD: u64 = 0;

/// The fences, which a model can remove to show that they are needed.
trait Fences {
    /// B2.
    const LIGHT: bool = true;
    /// L3.
    const HEAVY: bool = true;
}

/// Both fences: the protocol as it ships.
struct Shipped;

impl Fences for Shipped {}

/// The number of this thread. No other thread of the process has it or had it.
#[cfg_attr(all(test, loom), allow(dead_code, reason = "a model numbers its threads"))]
#[inline]
fn this_thread() -> u64 {
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(NO_THREAD) };
    }
    match NUMBER.get() {
        NO_THREAD => {
            NUMBER.set(new_number());
            NUMBER.get()
        }
        number => number,
    }
}

#[cold]
#[cfg_attr(all(test, loom), allow(dead_code, reason = "a model numbers its threads"))]
fn new_number() -> u64 {
    static NEXT: StaticU64 = StaticU64::new(NO_THREAD + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The lock without a value.
#[derive(Debug)]
pub(crate) struct Bias {
    /// The biased thread, once there is one.
    biased_thread: AtomicU64,
    /// Whether the bias is on. The biased thread sets it, other threads clear it, both under the latch.
    biased: AtomicU32,
    /// Whether the biased thread holds the lock without the latch. Only that thread writes it.
    inside: AtomicU32,
    latch: Latch,
    /// The thread that took the latch last, and how often in a row. Used only under the latch, as is the next.
    last_thread: AtomicU64,
    times_in_a_row: AtomicU64,
    /// How often in a row a thread must take the latch to become the biased thread.
    bias_after: AtomicU64,
}

/// How a thread took the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    ByBias,
    ByLatch,
}

#[cfg_attr(all(test, loom), allow(dead_code))]
impl Bias {
    fn new() -> Bias {
        Bias {
            biased_thread: AtomicU64::new(NO_THREAD),
            biased: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            latch: Latch::new(),
            last_thread: AtomicU64::new(NO_THREAD),
            times_in_a_row: AtomicU64::new(0),
            bias_after: AtomicU64::new(BIAS_AFTER),
        }
    }

    #[inline]
    fn take<F: Fences>(&self, me: u64) -> Taken {
        if self.biased_thread.load(Ordering::Relaxed) == me && self.enter_by_bias::<F>() {
            Taken::ByBias
        } else {
            self.take_latch::<F>(me)
        }
    }

    /// B1 to B3.
    #[inline]
    fn enter_by_bias<F: Fences>(&self) -> bool {
        if self.inside.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.inside.store(1, Ordering::Relaxed);
        if F::LIGHT {
            barrier::light();
        }
        let biased = self.biased.load(Ordering::Acquire) != 0;
        if !biased {
            // Release, as in B4: L4 may read this zero in place of that of an earlier B4.
            self.inside.store(0, Ordering::Release);
        }
        biased
    }

    /// L1 to L4.
    #[cold]
    fn take_latch<F: Fences>(&self, me: u64) -> Taken {
        self.latch.take();
        if self.biased.load(Ordering::Relaxed) != 0 {
            self.revoke::<F>();
        }
        let times = match self.last_thread.load(Ordering::Relaxed) == me {
            true => self.times_in_a_row.load(Ordering::Relaxed) + 1,
            false => 0,
        };
        self.last_thread.store(me, Ordering::Relaxed);
        self.times_in_a_row.store(times, Ordering::Relaxed);
        Taken::ByLatch
    }

    /// L2 to L4.
    fn revoke<F: Fences>(&self) {
        self.biased.store(0, Ordering::Relaxed);
        if F::HEAVY {
            barrier::heavy();
        }
        let mut looks = 0_u32;
        // Acquire, pairs with the Release of B4: this thread sees what the biased thread did inside.
        while self.inside.load(Ordering::Acquire) != 0 {
            looks = looks.saturating_add(1);
            pause(looks);
        }
        let bias_after = 2 * self.bias_after.load(Ordering::Relaxed);
        self.bias_after.store(bias_after.min(BIAS_AFTER_AT_MOST), Ordering::Relaxed);
    }

    #[inline]
    fn release(&self, taken: Taken) {
        match taken {
            Taken::ByBias => self.inside.store(0, Ordering::Release),
            Taken::ByLatch => self.release_latch(),
        }
    }

    /// L5.
    fn release_latch(&self) {
        if self.times_in_a_row.load(Ordering::Relaxed) >= self.bias_after.load(Ordering::Relaxed)
            && barrier::is_granted()
        {
            self.bias_to_last_thread();
        }
        self.latch.release();
    }

    /// Sets the bias to the thread that holds the latch, unless another thread had it once.
    fn bias_to_last_thread(&self) {
        let last = self.last_thread.load(Ordering::Relaxed);
        if [NO_THREAD, last].contains(&self.biased_thread.load(Ordering::Relaxed)) {
            self.biased_thread.store(last, Ordering::Relaxed);
            self.biased.store(1, Ordering::Relaxed);
        }
    }
}

/// Moves `thing` into a slot behind a lock that `thing` itself keeps alive. `lock_of` finds the lock, `slot_in` the slot
/// in the value behind it. Returns what was in the slot before, or `Err(thing)` if there is no lock or no slot.
///
/// `thing` may be all that keeps the lock alive, so neither is used after it was moved, except to release the lock.
#[inline]
pub(crate) fn put_behind<S, T>(
    thing: Arc<S>,
    lock_of: impl FnOnce(&S) -> Option<&Biased<T>>,
    slot_in: impl FnOnce(&mut T) -> Option<&mut Option<Arc<S>>>,
) -> Result<Option<Arc<S>>, Arc<S>> {
    let raw = Arc::into_raw(thing);
    // SAFETY: this function holds the count of `thing` until it moves it into the slot, so `thing` and the lock live
    // until then. From then on they are behind the lock, which no other thread takes before the guard is dropped. The
    // guard's last access is the store that releases the lock. While that store returns, `lock` may dangle; it refers
    // to a type with interior mutability, so the compiler assumes nothing about it, as in `Arc::drop`.
    if let Some(lock) = lock_of(unsafe { &*raw }) {
        let mut guard = lock.lock();
        if let Some(slot) = slot_in(&mut guard) {
            // SAFETY: `raw` came from `into_raw`, and its count is used up here.
            return Ok(slot.replace(unsafe { Arc::from_raw(raw) }));
        }
    }
    // SAFETY: `raw` came from `into_raw`, and its count was not used up above.
    Err(unsafe { Arc::from_raw(raw) })
}

// SAFETY: the contract at the head of this file: one holder at a time, which sees what earlier ones wrote.
#[cfg(not(all(test, loom)))]
unsafe impl RawLock for Bias {
    type Taken = Taken;

    #[inline]
    fn take(&self) -> Taken {
        Bias::take::<Shipped>(self, this_thread())
    }

    #[inline]
    fn release(&self, taken: Taken) {
        Bias::release(self, taken);
    }
}

/// A value behind a biased lock.
#[cfg(not(all(test, loom)))]
pub(crate) type Biased<T> = Guarded<Bias, T>;

/// Access to the value. Dropping it releases the lock.
#[cfg(not(all(test, loom)))]
pub(crate) type BiasedGuard<'a, T> = Guard<'a, Bias, T>;

#[cfg(not(all(test, loom)))]
impl<T> Biased<T> {
    pub(crate) fn new(value: T) -> Biased<T> {
        Guarded::new_behind(Bias::new(), value)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::cell::UnsafeCell;
    use loom::{model, thread};

    use super::*;

    struct Counter {
        bias: Bias,
        count: UnsafeCell<u32>,
    }

    // SAFETY: the threads of the model use the count only while they hold the lock. loom checks that this suffices.
    unsafe impl Sync for Counter {}

    impl Counter {
        fn increment<F: Fences>(&self, me: u64) -> Taken {
            let taken = self.bias.take::<F>(me);
            // SAFETY: the pointer is valid while the closure runs.
            self.count.with_mut(|count| unsafe { *count += 1 });
            self.bias.release(taken);
            taken
        }
    }

    /// The biased thread takes and releases the lock while another thread revokes the bias. It may get the bias again.
    fn bias_against_latch<F: Fences + 'static>() {
        model(|| {
            let counter = Arc::new(Counter { bias: Bias::new(), count: UnsafeCell::new(0) });
            assert_eq!(counter.increment::<F>(1), Taken::ByLatch);
            let other = counter.clone();
            let other = thread::spawn(move || other.increment::<F>(2));
            counter.increment::<F>(1);
            counter.increment::<F>(1);
            assert_eq!(other.join().unwrap(), Taken::ByLatch);
            counter.increment::<F>(1);
            // SAFETY: as above.
            assert_eq!(counter.count.with(|count| unsafe { *count }), 5);
        });
    }

    #[test]
    fn loom_a_biased_lock_has_one_holder_that_sees_all_earlier_writes() {
        bias_against_latch::<Shipped>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_needs_the_light_fence() {
        struct Weak;
        impl Fences for Weak {
            const LIGHT: bool = false;
        }
        bias_against_latch::<Weak>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_needs_the_heavy_fence() {
        struct Weak;
        impl Fences for Weak {
            const HEAVY: bool = false;
        }
        bias_against_latch::<Weak>();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn take_and_release(bias: &Bias, me: u64) -> Taken {
        let taken = bias.take::<Shipped>(me);
        bias.release(taken);
        taken
    }

    #[test]
    fn the_thread_that_takes_it_often_gets_the_bias_and_no_other_ever_does() {
        barrier::prepare();
        if !barrier::is_granted() {
            return; // without heavy fences every lock stays a latch
        }
        let bias = Bias::new();
        let take = |me, times: u64| (0..times).map(|_| take_and_release(&bias, me)).last();
        assert_eq!(take(1, BIAS_AFTER + 1), Some(Taken::ByLatch));
        assert_eq!(take(1, 1), Some(Taken::ByBias));
        assert_eq!(take(2, 10 * BIAS_AFTER), Some(Taken::ByLatch));
        assert_eq!(
            take(1, 2 * BIAS_AFTER + 1),
            Some(Taken::ByLatch),
            "more takings are needed after each revocation"
        );
        assert_eq!(take(1, 1), Some(Taken::ByBias));
    }

    #[test]
    fn threads_that_revoke_the_bias_lose_no_update() {
        barrier::prepare();
        let lock = Biased::new(0_u64);
        std::thread::scope(|scope| {
            let bursts = [1000, 100, 1];
            for burst in bursts {
                let lock = &lock;
                scope.spawn(move || {
                    for n in 0..20_000 {
                        *lock.lock() += 1;
                        if n % burst == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 60_000);
    }

    /// Keeps the lock alive that it is put behind.
    struct Thing(Arc<Biased<Option<Arc<Thing>>>>);

    fn slot(slot: &mut Option<Arc<Thing>>) -> Option<&mut Option<Arc<Thing>>> {
        Some(slot)
    }

    #[test]
    fn a_thing_is_put_behind_its_lock_and_the_one_before_is_returned() {
        let lock = Arc::new(Biased::new(None));
        let things = [(); 3].map(|()| Arc::new(Thing(lock.clone())));
        let put = |n: usize| put_behind(things[n].clone(), |thing| Some(&*thing.0), slot);
        assert!(put(0).is_ok_and(|before| before.is_none()));
        assert!(put(1).is_ok_and(|before| before.is_some_and(|it| Arc::ptr_eq(&it, &things[0]))));
        let refused = put_behind(things[2].clone(), |thing| Some(&*thing.0), |_| None);
        assert!(refused.is_err_and(|it| Arc::ptr_eq(&it, &things[2])));
        assert!(put_behind(things[2].clone(), |_| None, slot).is_err());
        *lock.lock() = None;
        assert!(things.iter().all(|thing| Arc::strong_count(thing) == 1));
    }

    #[test]
    fn a_thing_that_alone_keeps_its_lock_alive_can_be_taken_out_at_any_moment() {
        for _ in 0..200 {
            let lock = Arc::new(Biased::new(None));
            let (thing, other) = (Arc::new(Thing(lock.clone())), Arc::downgrade(&lock));
            drop(lock);
            std::thread::scope(|scope| {
                scope.spawn(move || put_behind(thing, |thing| Some(&*thing.0), slot).is_ok());
                scope.spawn(move || {
                    while let Some(lock) = other.upgrade() {
                        let taken = lock.lock().take();
                        drop((taken, lock));
                    }
                });
            });
        }
    }
}
