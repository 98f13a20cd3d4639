//! The owner's half of the lease protocol: steps O2 to O6 of `mod.rs`.
//!
//! The owner *retires* a slot when its own last handle has ended and its ring entries no longer name the slot (O1).
//! If no reader has a lease on the slot, the owner reuses it at once. Otherwise the slot waits in a queue. An
//! allocation that needs memory scans a few slots from the front. Slots that are still leased go to the back, so
//! that one slow reader does not hide the slots behind them.
//!
//! A scan takes the cache lines of a row from the process that is about to write them, and a claim needs a fence. So
//! while other processes are attached, the owner defers slots until it has a [`BATCH`] of them. One scan and one
//! fence then serve all of them: their words are neighbours in a row, as the slots were used one after another.
//! Without batches, the benchmark rows `fan-out/send 1080p to 1` and `hand-off/round trip` take 67 % and 57 % longer.

use std::collections::VecDeque;
use std::marker::PhantomData;

use crate::ipc::lease::reader::{Orderings, Shipped, word};
use crate::ipc::lease::rows::Rows;
use crate::ipc::lease::serial;
use crate::sync::{AtomicU64, Ordering, fence};

/// How many slots are claimed together: as many as have their words in one cache line of a row.
pub(crate) const BATCH: usize = 8;

/// Slots that the owner has retired and cannot reuse yet.
#[derive(Debug)]
pub(crate) struct RetiredSlots<O = Shipped> {
    /// Slots that were leased at the last scan. Each slot is in one of the two lists at most once, so the capacity that
    /// is reserved at the start always suffices.
    waiting: VecDeque<u32>,
    /// Slots that were not scanned yet, at most a [`BATCH`]. Without this list, the benchmark rows
    /// `fan-out/send 1080p to 4` and `hand-off/round trip, Image` take 31 % and 23 % longer.
    deferred: Vec<u32>,
    orderings: PhantomData<O>,
}

impl<O: Orderings> RetiredSlots<O> {
    /// Reserves room for every slot of a pool.
    pub(crate) fn new(max_slots: u32) -> Self {
        let waiting = VecDeque::with_capacity(max_slots as usize);
        RetiredSlots { waiting, deferred: Vec::with_capacity(BATCH), orderings: PhantomData }
    }

    /// The number of slots in both lists.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.deferred.len()
    }

    /// The number of deferred slots.
    pub(crate) fn deferred(&self) -> usize {
        self.deferred.len()
    }

    /// The slots of both lists: first those whose last scan is longest ago.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.waiting.iter().chain(&self.deferred).copied()
    }

    /// The slots that were leased at their last scan.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u32> {
        self.waiting.iter().copied()
    }

    /// Retires a slot. Returns whether the owner can reuse it at once. Otherwise it waits for a sweep.
    #[must_use = "a slot that can be reused and is not is lost"]
    pub(crate) fn retire<R: AsRef<[AtomicU64]>>(
        &mut self,
        slot: u32,
        serials: &[AtomicU64],
        rows: &Rows<R>,
    ) -> bool {
        let claimed = self.claim(slot, serials, rows);
        if !claimed {
            self.waiting.push_back(slot);
        }
        claimed
    }

    /// Returns whether the owner can reuse a slot at once. Otherwise the slot is not retired yet.
    #[must_use = "a slot that can be reused and is not is lost"]
    pub(crate) fn claim<R: AsRef<[AtomicU64]>>(
        &self,
        slot: u32,
        serials: &[AtomicU64],
        rows: &Rows<R>,
    ) -> bool {
        debug_assert!(self.iter().all(|other| other != slot), "slot {slot} was retired twice");
        let mut claimed = false;
        claim::<O, R>(&[slot], serials, rows, |_, free| claimed = free);
        claimed
    }

    /// Retires a slot without a scan. Returns whether it is time to call [`scan_deferred`](RetiredSlots::scan_deferred).
    pub(crate) fn defer(&mut self, slot: u32) -> bool {
        debug_assert!(self.iter().all(|other| other != slot), "slot {slot} was retired twice");
        self.deferred.push(slot);
        self.deferred.len() >= BATCH
    }

    /// Claims the deferred slots. Calls `scanned` for each, with whether the owner can reuse it; the others wait for a
    /// sweep.
    pub(crate) fn scan_deferred<R: AsRef<[AtomicU64]>>(
        &mut self,
        serials: &[AtomicU64],
        rows: &Rows<R>,
        mut scanned: impl FnMut(u32, bool),
    ) {
        let RetiredSlots { waiting, deferred, .. } = self;
        claim::<O, R>(deferred, serials, rows, |slot, free| {
            if !free {
                waiting.push_back(slot);
            }
            scanned(slot, free);
        });
        deferred.clear();
    }

    /// Lets a slot wait that no reader holds: a device still uses it.
    pub(crate) fn wait(&mut self, slot: u32) {
        self.waiting.push_back(slot);
    }

    /// Scans up to `limit` waiting slots again. Calls `reuse` for each that the owner can reuse.
    pub(crate) fn sweep<R: AsRef<[AtomicU64]>>(
        &mut self,
        limit: usize,
        serials: &[AtomicU64],
        rows: &Rows<R>,
        mut reuse: impl FnMut(u32),
    ) {
        let mut left = limit.min(self.waiting.len());
        while left > 0 {
            let mut batch = [0; BATCH];
            let count = left.min(BATCH);
            let slots = self.waiting.drain(..count);
            batch.iter_mut().zip(slots).for_each(|(to, slot)| *to = slot);
            let waiting = &mut self.waiting;
            claim::<O, R>(&batch[..count], serials, rows, |slot, free| match free {
                true => reuse(slot),
                false => waiting.push_back(slot),
            });
            left -= count;
        }
    }
}

/// Steps O2 to O6 for at most a [`BATCH`] of slots. Calls `done` for each slot, with whether the owner can reuse it. The
/// caller holds the owner's lock, so no other thread stores these serials.
fn claim<O: Orderings, R: AsRef<[AtomicU64]>>(
    slots: &[u32],
    serials: &[AtomicU64],
    rows: &Rows<R>,
    mut done: impl FnMut(u32, bool),
) {
    // O2, an optional pre-check. It skips slots that are obviously leased, so their readers do not see an odd serial.
    let free = |slot: u32| word(serials, slot).filter(|_| !rows.is_held::<O>(slot));
    let mut claimed: [Option<&AtomicU64>; BATCH] = [None; BATCH];
    claimed.iter_mut().zip(slots).for_each(|(claimed, &slot)| *claimed = free(slot));
    for serial in claimed.iter().flatten() {
        let stable = serial.load(Ordering::Relaxed);
        serial.store(serial::claiming(stable), Ordering::Relaxed);
    }
    if O::CLAIM_FENCE {
        fence(Ordering::SeqCst);
    }
    for (claimed, &slot) in claimed.iter().zip(slots) {
        let Some(serial) = claimed else {
            done(slot, false);
            continue;
        };
        let held = rows.is_held::<O>(slot);
        let claiming = serial.load(Ordering::Relaxed);
        let stable = if held { serial::restored(claiming) } else { serial::next(claiming) };
        serial.store(stable, Ordering::Relaxed);
        done(slot, !held);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words(values: &[u64]) -> Vec<AtomicU64> {
        values.iter().copied().map(AtomicU64::new).collect()
    }

    fn rows(values: &[&[u64]]) -> Rows<Vec<AtomicU64>> {
        let mut rows = Rows::new();
        for row in values {
            rows.insert(words(row));
        }
        rows
    }

    fn swept(
        retired: &mut RetiredSlots,
        limit: usize,
        serials: &[AtomicU64],
        rows: &Rows<Vec<AtomicU64>>,
    ) -> Vec<u32> {
        let mut slots = Vec::new();
        retired.sweep(limit, serials, rows, |slot| slots.push(slot));
        slots
    }

    #[test]
    fn a_slot_without_leases_is_reusable_at_once_under_a_new_serial() {
        let (serials, mut retired) = (words(&[2, 2]), RetiredSlots::<Shipped>::new(2));
        assert!(retired.retire(1, &serials, &rows(&[&[1, 0], &[0, 0]])));
        assert_eq!(serials[1].load(Ordering::Relaxed), 4);
        assert_eq!(retired.len(), 0);
    }

    #[test]
    fn a_leased_slot_waits_unchanged_until_its_row_is_dropped() {
        let (serials, mut retired) = (words(&[2]), RetiredSlots::<Shipped>::new(1));
        let mut rows = rows(&[&[0]]);
        let holder = rows.insert(words(&[u64::MAX]));
        assert!(!retired.retire(0, &serials, &rows));
        assert_eq!(swept(&mut retired, 9, &serials, &rows), [0_u32; 0]);
        assert_eq!(serials[0].load(Ordering::Relaxed), 2);
        rows.remove(holder);
        assert_eq!(swept(&mut retired, 9, &serials, &rows), [0]);
        assert_eq!(serials[0].load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_sweep_scans_no_more_than_its_limit_and_passes_over_leased_slots() {
        let (serials, mut retired) = (words(&[2; 5]), RetiredSlots::<Shipped>::new(5));
        let all = rows(&[&[1; 5]]);
        for slot in 0..5 {
            assert!(!retired.retire(slot, &serials, &all));
        }
        let first_two_held = rows(&[&[1, 1, 0, 0, 0]]);
        assert_eq!(swept(&mut retired, 2, &serials, &first_two_held), [0_u32; 0]);
        assert_eq!(swept(&mut retired, 2, &serials, &first_two_held), [2, 3]);
        assert_eq!(retired.iter().collect::<Vec<_>>(), [4, 0, 1]);
        assert_eq!(swept(&mut retired, 0, &serials, &first_two_held), [0_u32; 0]);
    }

    #[test]
    fn a_scan_of_deferred_slots_reports_each_of_them() {
        let (serials, rows) = (words(&[2; 8]), rows(&[&[0; 8]]));
        for count in 1..=8_u32 {
            let mut retired = RetiredSlots::<Shipped>::new(8);
            (0..count)
                .rev()
                .for_each(|slot| assert_eq!(retired.defer(slot), slot == 0 && count == 8));
            let mut passed = Vec::new();
            retired
                .scan_deferred(&serials, &rows, |slot, free| passed.extend(free.then_some(slot)));
            passed.sort_unstable();
            assert_eq!(passed, Vec::from_iter(0..count));
        }
    }

    #[test]
    fn waiting_never_allocates() {
        let (serials, mut retired) = (words(&[2; 8]), RetiredSlots::<Shipped>::new(8));
        let (capacity, held) = (retired.waiting.capacity(), rows(&[&[1; 8]]));
        for slot in 0..8 {
            assert!(!retired.retire(slot, &serials, &held));
        }
        for _ in 0..20 {
            assert_eq!(swept(&mut retired, 3, &serials, &held), [0_u32; 0]);
        }
        assert_eq!(retired.waiting.capacity(), capacity);
    }
}
