//! Checks before each allocation whether the memory is available, so that running out of memory is an error value and
//! not a kill.
//!
//! **The problem.** Linux provides a heap page when it is first touched. The free memory that it reports still includes
//! what was allocated and not touched yet, so ten tensors that fit one by one may not fit together.
//!
//! **The policy.** Every allocation holds a [`Reservation`]. A request is granted if
//!
//! ```text
//! request <= left - pending        left:    free memory as the OS reports it, less a margin
//!                                  pending: bytes reserved and not touched yet
//!                                         = reserved - min(reserved, touched - own)
//! ```
//!
//! where `touched` is the private memory of this process that has pages (`RssAnon`), and `own` is the part of it that
//! was never reserved here: the value of `touched` when nothing was reserved, or a smaller one seen since. So each page
//! counts once, touched or not. Memory that other processes take or free counts at once, because `left` is measured
//! anew.
//!
//! Memory that the kernel charges when it is created (`fallocate`) is pending only until then: its allocator calls
//! [`Reservation::settle`] when the call has returned. Heap memory keeps its reservation until it is freed.
//!
//! **The cost.** A measurement reads files for 100 to 300 µs. It is used for 100 ms, and for 1/16 of the memory that it
//! found free: while `reserved` stays below that `ceiling`, a reservation is one compare-and-swap and a look at the
//! clock. Small ones do not look at the clock. Only a fresh measurement refuses a request.
//!
//! **The limits.** (1) If the program's own heap grows after the first reservation, that looks like tensors being
//! touched, and pending is too small by as much. (2) Pending memory of other processes is invisible, and so is what
//! they take between measurement and use (up to 100 ms). (3) Freed memory that the allocator retains counts as used.
//! (4) Pages that a forked child copies on write are not reserved. Only the margin covers these. If the kernel reports
//! nothing (not Linux, or no `/proc`), every request is granted.

use crate::error::{Error, Limit, Result};
use crate::intervals::{LOCK_POLL, MEASUREMENT_MILLIS, RESERVE_ATTEMPTS};
use crate::sync::{Ordering, StaticU32, StaticU64};

/// Requests below this do not look at the clock.
const SMALL: u64 = 64 << 10;

/// The part of the free memory that may be reserved before the next measurement.
const UNMEASURED_PART: u64 = 16;

/// The memory that this process may still take.
///
/// The counters are estimates that guard no other memory, so `Relaxed` is enough for them.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Bytes of all live reservations.
    reserved: StaticU64,
    /// How far `reserved` may grow without a measurement; 0 during a measurement.
    ceiling: StaticU64,
    /// When the last measurement was made, in milliseconds of [`clock`].
    measured_at: StaticU64,
    /// Private memory of this process that was never reserved. Only the thread that holds the turn writes it.
    own: StaticU64,
    turn: Turn,
    measure: fn() -> Measurement,
}

/// What the operating system reports.
#[derive(Debug, Clone, Copy)]
struct Measurement {
    left: u64,
    limit: Limit,
    /// Private memory of this process that has pages; `None` if not known.
    touched: Option<u64>,
}

impl Measurement {
    #[cfg(target_os = "linux")]
    fn take() -> Self {
        use crate::sys::available_memory::{anonymous, available_memory};

        // In this order a page that is touched between the two calls counts twice. In the other it would not count.
        let touched = anonymous();
        let found = available_memory();
        Measurement { left: found.available, limit: found.limit, touched }
    }

    #[cfg(not(target_os = "linux"))]
    fn take() -> Self {
        Measurement { left: u64::MAX, limit: Limit::Machine, touched: None }
    }

    /// The bytes that can be granted while `reserved` bytes are, of which some have pages.
    fn free(&self, reserved: u64, own: u64) -> u64 {
        // If `touched` is not known, assume that all reserved bytes have pages: then `left` alone decides.
        let ours = self.touched.map_or(reserved, |touched| touched.saturating_sub(own));
        let pending = reserved.saturating_sub(ours);
        // The second bound keeps `reserved` from overflowing if there is no limit.
        self.left.saturating_sub(pending).min(u64::MAX - reserved)
    }
}

static PROCESS: Budget = Budget::new(Measurement::take);

impl Budget {
    const fn new(measure: fn() -> Measurement) -> Self {
        Budget {
            reserved: StaticU64::new(0),
            ceiling: StaticU64::new(0),
            measured_at: StaticU64::new(0),
            own: StaticU64::new(u64::MAX),
            turn: Turn::new(),
            measure,
        }
    }

    /// Reserves `len` bytes. Call it before the memory is allocated. Fails with [`Error::OutOfMemory`], which says how
    /// many bytes are free.
    pub(crate) fn reserve(len: usize) -> Result<Reservation> {
        PROCESS.grant(len)
    }

    fn grant(&'static self, len: usize) -> Result<Reservation> {
        if !self.grant_unmeasured(len as u64) {
            self.grant_measured(len)?;
        }
        Ok(Reservation { len, budget: self })
    }

    /// The fast path, without a lock: grants below the ceiling.
    fn grant_unmeasured(&self, bytes: u64) -> bool {
        (bytes < SMALL || self.is_fresh()) && self.try_raise(bytes)
    }

    fn is_fresh(&self) -> bool {
        clock().saturating_sub(self.measured_at.load(Ordering::Relaxed)) < MEASUREMENT_MILLIS
    }

    /// Adds to `reserved`, unless the sum is above the ceiling. Returns whether it did.
    fn try_raise(&self, bytes: u64) -> bool {
        let fits = |reserved: u64| {
            let sum = reserved.checked_add(bytes)?;
            (sum <= self.ceiling.load(Ordering::Relaxed)).then_some(sum)
        };
        // Acquire, pairs with the Release of a reservation's drop: a thread that sees `reserved` without a settled
        // reservation also sees the ceiling that `settle` lowered before.
        self.reserved.fetch_update(Ordering::Relaxed, Ordering::Acquire, fits).is_ok()
    }

    /// The slow path, one thread at a time.
    fn grant_measured(&self, len: usize) -> Result<()> {
        let bytes = len as u64;
        let _turn = self.turn.wait();
        // The thread that held the turn before may have just measured.
        if self.grant_unmeasured(bytes) {
            return Ok(());
        }
        let (free, limit) = self.measure_free(bytes);
        if bytes > free {
            self.open_fast_path(self.reserved.load(Ordering::Relaxed), free);
            return Err(Error::OutOfMemory { asked: len, available: to_usize(free), limit });
        }
        let reserved = self.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.open_fast_path(reserved, free - bytes);
        Ok(())
    }

    /// Measures the free memory. Returns it with the limit that bounds it, and leaves the fast path closed.
    fn measure_free(&self, wanted: u64) -> (u64, Limit) {
        self.ceiling.store(0, Ordering::Relaxed);
        for _ in 1..RESERVE_ATTEMPTS {
            let (free, limit, overtaken) = self.measure_once();
            if wanted <= free || !overtaken {
                return (free, limit);
            }
        }
        let (free, limit, _) = self.measure_once();
        (free, limit)
    }

    /// The same, once. Also returns whether reservations ended meanwhile: then more may be free.
    fn measure_once(&self) -> (u64, Limit, bool) {
        let before = self.reserved.load(Ordering::Relaxed);
        let found = (self.measure)();
        let after = self.reserved.load(Ordering::Relaxed);
        let own = self.update_own(before, found.touched);
        // The larger value, because the measurement may miss what was settled during it.
        (found.free(before.max(after), own), found.limit, after < before)
    }

    /// Updates `own`. It is exact if nothing is reserved; otherwise only a smaller value is evidence.
    fn update_own(&self, reserved: u64, touched: Option<u64>) -> u64 {
        let known = if reserved == 0 { u64::MAX } else { self.own.load(Ordering::Relaxed) };
        let own = known.min(touched.unwrap_or(u64::MAX));
        self.own.store(own, Ordering::Relaxed);
        own
    }

    /// Sets the ceiling: the fast path may grant a part of the free memory.
    fn open_fast_path(&self, reserved: u64, free: u64) {
        let ceiling = reserved.saturating_add(free / UNMEASURED_PART);
        self.ceiling.store(ceiling, Ordering::Relaxed);
        self.measured_at.store(clock(), Ordering::Relaxed);
    }
}

/// Milliseconds since the machine started.
#[cfg(target_os = "linux")]
fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let millis = now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000);
    u64::try_from(millis).unwrap_or(0)
}

/// Milliseconds since the first call.
#[cfg(not(target_os = "linux"))]
fn clock() -> u64 {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A claim to bytes of memory. Dropping it ends the claim.
///
/// Drop it after the memory is freed: in a struct, declare it below the field that owns the memory.
#[derive(Debug)]
#[must_use = "dropping a reservation ends it"]
pub(crate) struct Reservation {
    len: usize,
    budget: &'static Budget,
}

impl Reservation {
    /// Ends the reservation of memory that the kernel has charged. Measurements include that memory until it is freed.
    #[cfg(any(test, target_os = "linux"))]
    pub(crate) fn settle(self) {
        // The bytes are in use, so the fast path must not grant them again: the ceiling sinks with `reserved`. Under
        // the turn, so that no thread sets a ceiling that it computed before.
        let _turn = self.budget.turn.wait();
        let bytes = self.len as u64;
        let lower = |ceiling: u64| Some(ceiling.saturating_sub(bytes));
        let _ = self.budget.ceiling.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        drop(self);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.reserved.fetch_sub(self.len as u64, Ordering::Release);
    }
}

/// A lock that a forked child can take even if a thread of its parent held it during the fork.
///
/// A waiter sleeps and does not spin, so that a thread of real-time priority does not starve the holder.
#[derive(Debug)]
struct Turn {
    /// The process of the thread that holds the turn, or 0.
    holder: StaticU32,
}

impl Turn {
    const fn new() -> Self {
        Turn { holder: StaticU32::new(0) }
    }

    fn wait(&self) -> TurnGuard<'_> {
        let me = std::process::id();
        while !self.try_take(0, me) {
            let holder = self.holder.load(Ordering::Relaxed);
            // The thread that holds it exists only in the parent.
            let abandoned = holder != 0 && holder != me;
            if abandoned && self.try_take(holder, me) {
                break;
            }
            std::thread::sleep(LOCK_POLL);
        }
        TurnGuard(self)
    }

    fn try_take(&self, from: u32, me: u32) -> bool {
        self.holder.compare_exchange(from, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

struct TurnGuard<'a>(&'a Turn);

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.holder.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Mutex;

    use super::*;

    const MIB: usize = 1 << 20;

    thread_local! {
        /// The operating system of a test: bytes left, bytes touched, number of measurements.
        static LEFT: Cell<usize> = const { Cell::new(0) };
        static TOUCHED: Cell<usize> = const { Cell::new(0) };
        static MEASURED: Cell<u32> = const { Cell::new(0) };
    }

    fn fake() -> Measurement {
        MEASURED.set(MEASURED.get() + 1);
        Measurement {
            left: LEFT.get() as u64,
            limit: Limit::Cgroup,
            touched: Some(TOUCHED.get() as u64),
        }
    }

    fn budget(left: usize) -> &'static Budget {
        LEFT.set(left);
        TOUCHED.set(5 * MIB);
        keep(Budget::new(fake))
    }

    /// Makes a budget that outlives its reservations. It is in a static, so leak checkers do not report it.
    fn keep(budget: Budget) -> &'static Budget {
        static KEPT: Mutex<Vec<&'static Budget>> = Mutex::new(Vec::new());
        let budget: &'static Budget = Box::leak(Box::new(budget));
        KEPT.lock().unwrap().push(budget);
        budget
    }

    /// Pretends that the process touches pages, reserved or not.
    fn touch(bytes: usize) {
        LEFT.set(LEFT.get() - bytes);
        TOUCHED.set(TOUCHED.get() + bytes);
    }

    fn fill(budget: &'static Budget, len: usize) -> Vec<Reservation> {
        std::iter::from_fn(|| budget.grant(len).ok()).take(1_000_000).collect()
    }

    fn refusal(budget: &'static Budget, len: usize) -> (usize, usize, Limit) {
        match budget.grant(len) {
            Err(Error::OutOfMemory { asked, available, limit }) => (asked, available, limit),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_reservation_is_two_words_that_any_thread_may_hold() {
        fn any_thread<T: Send + Sync>() {}
        any_thread::<Reservation>();
        assert!(size_of::<Reservation>() <= 16);
    }

    #[test]
    fn untouched_reservations_add_up_to_what_is_left() {
        let budget = budget(64 * MIB);
        let all = fill(budget, MIB);
        assert_eq!(all.len(), 64);
        assert_eq!(refusal(budget, MIB), (MIB, 0, Limit::Cgroup));
    }

    #[test]
    fn touched_reservations_are_counted_once() {
        let budget = budget(64 * MIB);
        let mut all = Vec::new();
        while let Ok(one) = budget.grant(MIB) {
            all.push(one);
            touch(MIB);
        }
        assert_eq!(all.len(), 64);
    }

    #[test]
    fn settled_reservations_are_counted_once() {
        let budget = budget(64 * MIB);
        let mut settled = 0;
        while let Ok(one) = budget.grant(MIB) {
            // fallocate: the memory is charged, but is not private memory of this process.
            LEFT.set(LEFT.get() - MIB);
            one.settle();
            settled += 1;
        }
        assert_eq!(settled, 64);
        assert_eq!(budget.reserved.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn small_reservations_add_up_too() {
        let budget = budget(MIB);
        assert_eq!(fill(budget, 1000).len(), MIB / 1000);
    }

    #[test]
    fn dropped_reservations_can_be_granted_again() {
        let budget = budget(64 * MIB);
        for _ in 0..3 {
            assert_eq!(fill(budget, MIB).len(), 64);
        }
        assert_eq!(budget.reserved.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_refusal_reserves_nothing_and_says_how_much_is_free() {
        let budget = budget(64 * MIB);
        let _half = budget.grant(32 * MIB).unwrap();
        assert_eq!(refusal(budget, 33 * MIB), (33 * MIB, 32 * MIB, Limit::Cgroup));
        assert_eq!(refusal(budget, usize::MAX), (usize::MAX, 32 * MIB, Limit::Cgroup));
        let _rest = budget.grant(32 * MIB).unwrap();
    }

    #[test]
    fn memory_of_other_processes_adds_to_pending_memory() {
        let budget = budget(64 * MIB);
        let _untouched = budget.grant(30 * MIB).unwrap();
        LEFT.set(44 * MIB);
        assert_eq!(refusal(budget, 20 * MIB).1, 14 * MIB);
        LEFT.set(100 * MIB);
        let _more = budget.grant(70 * MIB).unwrap();
    }

    #[test]
    fn temporary_memory_of_the_program_has_no_lasting_effect() {
        let budget = budget(64 * MIB);
        let _ours = budget.grant(20 * MIB).unwrap();
        touch(20 * MIB);
        let (left, touched) = (LEFT.get(), TOUCHED.get());
        touch(30 * MIB);
        assert_eq!(refusal(budget, 20 * MIB).1, 14 * MIB);
        LEFT.set(left);
        TOUCHED.set(touched);
        assert_eq!(refusal(budget, 50 * MIB).1, 44 * MIB);
    }

    #[test]
    fn measurements_are_rare() {
        let budget = budget(16 << 30);
        let before = MEASURED.get();
        let held: Vec<_> = (0..512).map(|_| budget.grant(MIB).unwrap()).collect();
        for _ in 0..1000 {
            drop(budget.grant(MIB).unwrap());
        }
        drop(held);
        // One for the first request; more only if the test was delayed for 100 ms.
        assert!(MEASURED.get() - before < 10, "{}", MEASURED.get() - before);
    }

    #[test]
    fn an_old_measurement_is_not_trusted_with_large_requests() {
        let budget = budget(64 * MIB);
        let _first = budget.grant(MIB).unwrap();
        LEFT.set(0);
        budget.measured_at.store(0, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(MEASUREMENT_MILLIS + 1));
        refusal(budget, MIB);
    }

    #[test]
    fn every_request_is_granted_if_nothing_is_known() {
        fn unknown() -> Measurement {
            Measurement { left: u64::MAX, limit: Limit::Machine, touched: None }
        }
        let budget = keep(Budget::new(unknown));
        let _one = budget.grant(usize::MAX / 2).unwrap();
        let _two = budget.grant(usize::MAX / 2).unwrap();
        // The counters do not overflow.
        refusal(budget, usize::MAX);
    }

    #[test]
    fn threads_are_never_granted_more_than_is_free() {
        fn constant() -> Measurement {
            Measurement { left: 100 << 20, limit: Limit::Cgroup, touched: Some(0) }
        }
        let budget = keep(Budget::new(constant));
        let counts: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| fill(budget, MIB))).collect();
            // No thread drops a reservation before all were refused.
            let all: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            all.iter().map(Vec::len).collect()
        });
        assert_eq!(counts.iter().sum::<usize>(), 100, "{counts:?}");
        assert_eq!(budget.reserved.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_turn_that_was_held_during_a_fork_can_be_taken() {
        let budget = budget(64 * MIB);
        budget.turn.holder.store(u32::MAX, Ordering::Relaxed);
        let _one = budget.grant(MIB).unwrap();
        assert_eq!(budget.turn.holder.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_process_budget_works_on_this_machine() {
        let one = Budget::reserve(MIB).unwrap();
        drop(one);
        if cfg!(target_os = "linux") {
            assert!(matches!(Budget::reserve(1 << 55), Err(Error::OutOfMemory { .. })));
        }
    }
}
