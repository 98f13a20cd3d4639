//! A lock that one thread takes nearly always: it does so without an atomic exchange.
//!
//! A topic is sent to by one thread, and received from by one, most of the time, but anybody may do so at any
//! moment. What an uncontended lock costs is the exchange, which waits for all that was stored before; a message
//! has several locks on its way. (Kawachiya, Koseki, Onodera, "Lock Reservation", OOPSLA 2002, with the fence of
//! Dice, Moir, Scherer, "Quickly Reacquirable Locks", 2003, by the kernel.)
//!
//! ```text
//!   the favoured thread               anybody else
//!   F1  inside := 1                   E1  take the latch
//!   F2  light fence                   E2  favour := off
//!   F3  favour on? else by the latch  E3  heavy fence
//!   F4  inside := 0                   E4  wait until inside is 0
//!                                     E5  leave the latch
//! ```
//!
//! A thread that comes by the latch often enough in a row is favoured when it leaves. One thread is for the life of
//! the lock, though not without pause: a thread that was about to enter when favour was taken from it may do F1 at
//! any time after, and must not do that to another's word. Each time that favour is taken away it is harder to come
//! by, so a lock that threads share remains a latch.
//!
//! # Contract
//! The lock has one holder: from F3 to F4, or from E4 to E5. Fences F2 and E3
//! are one: either F3 sees E2, or E4 sees F1. Favour is given by the favoured thread itself, which has the latch
//! then, so nobody is between E2 and E5. F1 is not done twice: a thread that has the lock and asks for it again waits
//! for ever, as for any lock.
#![cfg(target_os = "linux")]
#![allow(
    unsafe_code,
    reason = "promises that there is one holder at a time; puts a counted reference behind the lock that it leads to"
)]

/// In models of what stands on it, loom's own lock takes its place: the bias has a model of its own.
#[cfg(all(test, loom))]
pub(crate) use crate::sync::lock::{Lock as Biased, LockGuard as BiasedGuard};

use std::cell::Cell;
use std::sync::Arc;

use crate::intervals::{BIAS_AFTER, BIAS_AFTER_AT_MOST};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::barrier;
#[cfg(not(all(test, loom)))]
use crate::sync::guarded::{Guard, Guarded, Hold};
use crate::sync::lock::{Latch, pause};
use crate::sync::statics::StaticU64;

/// No thread.
const NOBODY: u64 = 0;

/// The parts of the protocol that a model can take away to show that they are needed.
trait Fences {
    /// F2.
    const LIGHT: bool = true;
    /// E3.
    const HEAVY: bool = true;
}

/// The protocol with nothing taken away.
struct Shipped;

impl Fences for Shipped {}

/// Tells threads apart, those that have ended, too.
#[inline]
fn this_thread() -> u64 {
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(NOBODY) };
    }
    match NUMBER.get() {
        NOBODY => {
            NUMBER.set(new_number());
            NUMBER.get()
        }
        number => number,
    }
}

#[cold]
fn new_number() -> u64 {
    static NEXT: StaticU64 = StaticU64::new(NOBODY + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The bare lock.
#[derive(Debug)]
pub(crate) struct Bias {
    /// The favoured thread, once there is one.
    favoured: AtomicU64,
    /// Whether it is, just now. Switched on by itself, and off by others, under the latch.
    favour: AtomicU32,
    /// Whether it has the lock, without the latch. Its own word, which nobody else writes.
    inside: AtomicU32,
    latch: Latch,
    /// Who had the latch last, and how often in a row. These are looked at under the latch only.
    last: AtomicU64,
    row: AtomicU64,
    patience: AtomicU64,
}

/// How a thread has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Favoured,
    Latch,
}

#[cfg_attr(all(test, loom), allow(dead_code))]
impl Bias {
    fn new() -> Bias {
        Bias {
            favoured: AtomicU64::new(NOBODY),
            favour: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            latch: Latch::new(),
            last: AtomicU64::new(NOBODY),
            row: AtomicU64::new(0),
            patience: AtomicU64::new(BIAS_AFTER),
        }
    }

    #[inline]
    fn take<F: Fences>(&self, me: u64) -> Way {
        if self.favoured.load(Ordering::Relaxed) == me && self.enter::<F>() {
            Way::Favoured
        } else {
            self.take_latch::<F>(me)
        }
    }

    /// F1 to F3.
    #[inline]
    fn enter<F: Fences>(&self) -> bool {
        if self.inside.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.inside.store(1, Ordering::Relaxed);
        if F::LIGHT {
            barrier::light();
        }
        let favoured = self.favour.load(Ordering::Acquire) != 0;
        if !favoured {
            // Release, as F4, which it may hide from E4.
            self.inside.store(0, Ordering::Release);
        }
        favoured
    }

    /// E1 to E4.
    #[cold]
    fn take_latch<F: Fences>(&self, me: u64) -> Way {
        self.latch.take();
        if self.favour.load(Ordering::Relaxed) != 0 {
            self.take_favour_away::<F>();
        }
        let row = match self.last.load(Ordering::Relaxed) == me {
            true => self.row.load(Ordering::Relaxed) + 1,
            false => 0,
        };
        self.last.store(me, Ordering::Relaxed);
        self.row.store(row, Ordering::Relaxed);
        Way::Latch
    }

    fn take_favour_away<F: Fences>(&self) {
        self.favour.store(0, Ordering::Relaxed);
        if F::HEAVY {
            barrier::heavy();
        }
        let mut looks = 0_u32;
        // Acquire, pairs with the Release of F4: what was done inside.
        while self.inside.load(Ordering::Acquire) != 0 {
            looks = looks.saturating_add(1);
            pause(looks);
        }
        let patience = 2 * self.patience.load(Ordering::Relaxed);
        self.patience.store(patience.min(BIAS_AFTER_AT_MOST), Ordering::Relaxed);
    }

    #[inline]
    fn leave(&self, way: Way) {
        match way {
            Way::Favoured => self.inside.store(0, Ordering::Release),
            Way::Latch => self.leave_latch(),
        }
    }

    /// E5.
    fn leave_latch(&self) {
        if self.row.load(Ordering::Relaxed) >= self.patience.load(Ordering::Relaxed)
            && barrier::is_granted()
        {
            self.favour_last();
        }
        self.latch.free();
    }

    /// Favours whoever leaves the latch, unless another has been.
    fn favour_last(&self) {
        let last = self.last.load(Ordering::Relaxed);
        if [NOBODY, last].contains(&self.favoured.load(Ordering::Relaxed)) {
            self.favoured.store(last, Ordering::Relaxed);
            self.favour.store(1, Ordering::Relaxed);
        }
    }
}

/// Puts a thing in a place behind a lock that the thing itself leads to, by `of`. Gives back what was in that place
/// before; or the thing, if there is no such lock, or no place behind it.
///
/// The thing may be all that keeps the lock alive, so neither is looked at again once it is given away.
#[inline]
pub(crate) fn put_behind<S, T>(
    thing: Arc<S>,
    of: impl FnOnce(&S) -> Option<&Biased<T>>,
    place: impl FnOnce(&mut T) -> Option<&mut Option<Arc<S>>>,
) -> Result<Option<Arc<S>>, Arc<S>> {
    let raw = Arc::into_raw(thing);
    // SAFETY: the count that `thing` had is ours until it is put in its place, and what it leads to lives as long.
    // From then on it is behind a lock that nobody else has before the guard is dropped, of which the last access is
    // the store that frees it. While that returns, `lock` may dangle; it is a reference to what has interior
    // mutability, so nothing is assumed of it meanwhile, as in `Arc::drop`.
    if let Some(lock) = of(unsafe { &*raw }) {
        let mut guard = lock.lock();
        if let Some(place) = place(&mut guard) {
            // SAFETY: as it came from `into_raw`, and this is where it is given away.
            return Ok(place.replace(unsafe { Arc::from_raw(raw) }));
        }
    }
    // SAFETY: as it came from `into_raw`, and was not given away.
    Err(unsafe { Arc::from_raw(raw) })
}

// SAFETY: see the contract above.
#[cfg(not(all(test, loom)))]
unsafe impl Hold for Bias {
    type Way = Way;

    #[inline]
    fn take(&self) -> Way {
        Bias::take::<Shipped>(self, this_thread())
    }

    #[inline]
    fn leave(&self, way: Way) {
        Bias::leave(self, way);
    }
}

/// A value behind such a lock.
#[cfg(not(all(test, loom)))]
pub(crate) type Biased<T> = Guarded<Bias, T>;

/// The right to the value; ends with the guard.
#[cfg(not(all(test, loom)))]
pub(crate) type BiasedGuard<'a, T> = Guard<'a, Bias, T>;

#[cfg(not(all(test, loom)))]
impl<T> Biased<T> {
    pub(crate) fn new(value: T) -> Biased<T> {
        Guarded::over(Bias::new(), value)
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

    // SAFETY: the threads of the model look at the count while they have the lock. That this is enough is what loom
    // checks.
    unsafe impl Sync for Counter {}

    impl Counter {
        fn increment<F: Fences>(&self, me: u64) -> Way {
            let way = self.bias.take::<F>(me);
            // SAFETY: the pointer is good for the length of the closure.
            self.count.with_mut(|count| unsafe { *count += 1 });
            self.bias.leave(way);
            way
        }
    }

    /// The favoured thread goes in and out while another comes; it is favoured again later, or not.
    fn favoured_and_other<F: Fences + 'static>() {
        model(|| {
            let counter = Arc::new(Counter { bias: Bias::new(), count: UnsafeCell::new(0) });
            assert_eq!(counter.increment::<F>(1), Way::Latch);
            let other = counter.clone();
            let other = thread::spawn(move || other.increment::<F>(2));
            counter.increment::<F>(1);
            counter.increment::<F>(1);
            assert_eq!(other.join().unwrap(), Way::Latch);
            counter.increment::<F>(1);
            // SAFETY: as above.
            assert_eq!(counter.count.with(|count| unsafe { *count }), 5);
        });
    }

    #[test]
    fn loom_a_biased_lock_has_one_holder_who_sees_what_the_last_one_did() {
        favoured_and_other::<Shipped>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_needs_the_light_fence() {
        struct Weak;
        impl Fences for Weak {
            const LIGHT: bool = false;
        }
        favoured_and_other::<Weak>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_needs_the_heavy_fence() {
        struct Weak;
        impl Fences for Weak {
            const HEAVY: bool = false;
        }
        favoured_and_other::<Weak>();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn take_and_leave(bias: &Bias, me: u64) -> Way {
        let way = bias.take::<Shipped>(me);
        bias.leave(way);
        way
    }

    #[test]
    fn whoever_comes_often_is_favoured_and_nobody_else_ever_is() {
        barrier::prepare();
        if !barrier::is_granted() {
            return; // then nobody is: every lock is a latch
        }
        let bias = Bias::new();
        let come = |me, times: u64| (0..times).map(|_| take_and_leave(&bias, me)).last();
        assert_eq!(come(1, BIAS_AFTER + 1), Some(Way::Latch));
        assert_eq!(come(1, 1), Some(Way::Favoured));
        assert_eq!(come(2, 10 * BIAS_AFTER), Some(Way::Latch));
        assert_eq!(come(1, 2 * BIAS_AFTER + 1), Some(Way::Latch), "it takes longer each time");
        assert_eq!(come(1, 1), Some(Way::Favoured));
    }

    #[test]
    fn threads_that_favour_is_taken_from_lose_no_update() {
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

    /// Leads to the place that it is put in.
    struct Thing(Arc<Biased<Option<Arc<Thing>>>>);

    fn there(place: &mut Option<Arc<Thing>>) -> Option<&mut Option<Arc<Thing>>> {
        Some(place)
    }

    #[test]
    fn a_thing_goes_where_it_leads_and_what_was_there_comes_back() {
        let lock = Arc::new(Biased::new(None));
        let things = [(); 3].map(|()| Arc::new(Thing(lock.clone())));
        let put = |n: usize| put_behind(things[n].clone(), |thing| Some(&*thing.0), there);
        assert!(put(0).is_ok_and(|before| before.is_none()));
        assert!(put(1).is_ok_and(|before| before.is_some_and(|it| Arc::ptr_eq(&it, &things[0]))));
        let refused = put_behind(things[2].clone(), |thing| Some(&*thing.0), |_| None);
        assert!(refused.is_err_and(|it| Arc::ptr_eq(&it, &things[2])));
        assert!(put_behind(things[2].clone(), |_| None, there).is_err());
        *lock.lock() = None;
        assert!(things.iter().all(|thing| Arc::strong_count(thing) == 1));
    }

    #[test]
    fn a_thing_that_is_all_that_keeps_its_lock_can_be_taken_out_at_any_moment() {
        for _ in 0..200 {
            let lock = Arc::new(Biased::new(None));
            let (thing, other) = (Arc::new(Thing(lock.clone())), Arc::downgrade(&lock));
            drop(lock);
            std::thread::scope(|scope| {
                scope.spawn(move || put_behind(thing, |thing| Some(&*thing.0), there).is_ok());
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
