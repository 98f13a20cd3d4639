//! What a reader does to keep a slot: hazard pointers (Michael, "Hazard Pointers: Safe Memory
//! Reclamation for Lock-Free Objects", IEEE TPDS 15(6), 2004), counted, and across processes.
//!
//! ```text
//!   reader (its own row)                     owner (retire.rs)
//!   R1  lease[slot] += 1                     O1  take the slot out of its own ring entries
//!   R2  SeqCst fence                         O2  scan every row: somebody holds it → wait
//!   R3  validate: the ring entry, or         O3  serial := odd ("claiming")
//!       serial == the descriptor's           O4  SeqCst fence
//!   R4  read the bytes                       O5  scan every row: held → restore the serial, wait
//!   R5  lease[slot] -= 1                     O6  serial := next even one
//!                                            O7  write the bytes
//! ```
//!
//! # Invariants
//!
//! 1. A row is written by one process alone: by any of its threads, with `fetch_add` and `fetch_sub`, or by one at
//!    a time, under a lock. A serial is stored by the owner alone, under the owner's lock.
//! 2. Non-zero is the only thing the owner reads out of a row word, so a hostile row can at worst hold
//!    slots, and dropping the row undoes all that its process did, at whatever instruction it died.
//! 3. **A validated lease is seen by every later claim.** The fences R2 and O4 are totally ordered. If
//!    O4 came first, R3 sees O1 and O3 (or what followed) and does not validate. So R2 came first, and
//!    then O5 sees R1. This holds for each look of R3, so one fence serves all of them; and for both
//!    ways to validate, so long as O1 precedes O4.
//! 4. Whoever looks only at a *forwarder's* ring does not have invariant 3: the forwarder's lease can
//!    go after O5 passed the reader's row and before it reaches the forwarder's. Hence foreign slots
//!    are validated at the owner's serial.
//!
//! # Why these orderings (`loom_tests.rs` has a model that fails for each that is made weaker)
//!
//! - R1 `Relaxed`: R2 orders it. It is a read-modify-write, so it continues the release sequence of an
//!   earlier R5 by another thread, and the owner that reads the sum still acquires that R5.
//! - R2 and O4 `SeqCst` fences, pair with each other: store, then load, of two different words; nothing
//!   weaker keeps those two apart. The first scan is a hint and has no fence of its own.
//! - R3 `Relaxed`: R2 orders it. The bytes were made visible by whatever carried the descriptor (ring
//!   entry, socket); the serial only says that they have not changed since.
//! - R5 `Release`, pairs with the `Acquire` of O2 and O5: the owner that sees zero writes after all
//!   reads are done. Where it is a store, it is ordered after an earlier R5 by the lock. An undo has read nothing,
//!   but shares the code.
//! - O3, O6 `Relaxed`: O4 orders the first; the second shows a reader nothing but "stale" until its
//!   descriptor is published, and publishing is a release.

use std::marker::PhantomData;

use crate::error::Error;
use crate::intervals::CLAIM_LOOKS;
use crate::ipc::lease::serial;
use crate::sync::{AtomicU64, Ordering, fence, spin_loop};

/// The most leases that the threads of one process can have on one slot. Threads that try at the same
/// moment overshoot it by one each before they undo, which is far from wrapping the word.
pub(crate) const MAX_LEASES: u64 = 1 << 32;

/// The parts of the protocol that a model can take away to show that they are needed.
pub(crate) trait Orderings {
    /// R2.
    const READER_FENCE: bool = true;
    /// O4.
    const CLAIM_FENCE: bool = true;
    /// R5.
    const RELEASE: Ordering = Ordering::Release;
    /// O2 and O5.
    const SCAN: Ordering = Ordering::Acquire;
}

/// The protocol with nothing taken away: what everything but a model uses.
#[derive(Debug)]
pub(crate) struct Shipped;

impl Orderings for Shipped {}

/// Why a slot was not leased. Nothing is held afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The slot number is beyond the row or the serials.
    NoSuchSlot,
    /// This process has [`MAX_LEASES`] on the slot, or holds as many slots as it may.
    TooMany { max: u32 },
    /// The owner is claiming the slot and did not finish in time. Look again later; if the owner is
    /// dead, never.
    Busy,
    /// The slot has other content by now.
    Stale,
}

impl Refused {
    /// What to tell a caller who asked for a slot of `pool`.
    pub(crate) fn into_error(self, pool: &str, slot: u32, max: u32) -> Error {
        let pool = pool.to_owned();
        match self {
            // An owner that does not finish claiming is dead or will have reused the slot.
            Refused::Stale | Refused::Busy => Error::Stale { pool },
            Refused::NoSuchSlot => Error::NoSuchSlot { pool, slot, max },
            Refused::TooMany { max } => Error::TooManyLeases { pool, max },
        }
    }
}

/// One process's leases on the slots of one pool: its own row, and the owner's serials.
#[derive(Debug)]
pub(crate) struct Leases<'a, O = Shipped> {
    row: &'a [AtomicU64],
    serials: &'a [AtomicU64],
    orderings: PhantomData<O>,
}

impl<'a, O: Orderings> Leases<'a, O> {
    /// Leases are counted in `row`, which has one word per slot, as has `serials`.
    #[inline]
    pub(crate) fn new(row: &'a [AtomicU64], serials: &'a [AtomicU64]) -> Self {
        Leases { row, serials, orderings: PhantomData }
    }

    /// Leases a slot that a ring entry names, if the ring's publisher owns it. `unchanged` tells whether
    /// the entry still has the sequence under which the slot number was read.
    #[inline(always)]
    pub(crate) fn by_entry(
        &self,
        slot: u32,
        unchanged: impl FnOnce() -> bool,
    ) -> Result<(), Refused> {
        self.acquire(slot, || if unchanged() { Ok(()) } else { Err(Refused::Stale) })
    }

    /// Leases a slot that any other descriptor names, if it still has that descriptor's serial.
    pub(crate) fn by_serial(&self, slot: u32, expected: u64) -> Result<(), Refused> {
        let serial = word(self.serials, slot).ok_or(Refused::NoSuchSlot)?;
        // An odd serial would equal what the owner shows while it claims.
        if !serial::is_stable(expected) {
            return Err(Refused::Stale);
        }
        self.acquire(slot, || validate(serial, expected))
    }

    /// Gives one lease back.
    #[inline]
    pub(crate) fn release(&self, slot: u32) {
        if let Some(word) = word(self.row, slot) {
            word.fetch_sub(1, O::RELEASE);
        }
    }

    /// The same, for whoever has the row to himself just now: no other thread leases in it or gives back. That takes
    /// no atomic exchange.
    #[inline]
    pub(crate) fn release_alone(&self, slot: u32) {
        if let Some(word) = word(self.row, slot) {
            word.store(word.load(Ordering::Relaxed).wrapping_sub(1), O::RELEASE);
        }
    }

    #[inline(always)]
    fn acquire(
        &self,
        slot: u32,
        validate: impl FnOnce() -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let word = word(self.row, slot).ok_or(Refused::NoSuchSlot)?;
        let outcome = if word.fetch_add(1, Ordering::Relaxed) < MAX_LEASES {
            if O::READER_FENCE {
                fence(Ordering::SeqCst);
            }
            validate()
        } else {
            Err(Refused::TooMany { max: u32::MAX })
        };
        outcome.inspect_err(|_| self.release(slot))
    }
}

/// The word of a slot, if there is one: slot numbers are input.
#[inline]
pub(crate) fn word(words: &[AtomicU64], slot: u32) -> Option<&AtomicU64> {
    words.get(slot as usize)
}

fn validate(serial: &AtomicU64, expected: u64) -> Result<(), Refused> {
    for _ in 0..CLAIM_LOOKS {
        match serial.load(Ordering::Relaxed) {
            found if found == expected => return Ok(()),
            found if found == serial::claiming(expected) => spin_loop(),
            _ => return Err(Refused::Stale),
        }
    }
    Err(Refused::Busy)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ipc::lease::serial::FIRST;

    fn words(values: [u64; 2]) -> [AtomicU64; 2] {
        values.map(AtomicU64::new)
    }

    fn leases<'a>(row: &'a [AtomicU64], serials: &'a [AtomicU64]) -> Leases<'a> {
        Leases::new(row, serials)
    }

    fn value(words: &[AtomicU64], slot: usize) -> u64 {
        words[slot].load(Ordering::Relaxed)
    }

    #[test]
    fn leases_are_counted_per_slot() {
        let (row, serials) = (words([0, 0]), words([FIRST, 8]));
        let leases = leases(&row, &serials);
        assert_eq!(leases.by_serial(1, 8), Ok(()));
        assert_eq!(leases.by_entry(1, || true), Ok(()));
        assert_eq!((value(&row, 0), value(&row, 1)), (0, 2));
        leases.release(1);
        assert_eq!(value(&row, 1), 1);
    }

    #[test]
    fn what_is_refused_leaves_no_lease() {
        let (row, serials) = (words([0, 0]), words([6, 7]));
        let leases = leases(&row, &serials);
        assert_eq!(leases.by_serial(0, 4), Err(Refused::Stale));
        assert_eq!(leases.by_serial(0, 8), Err(Refused::Stale));
        assert_eq!(leases.by_serial(1, 6), Err(Refused::Busy));
        assert_eq!(leases.by_serial(1, 4), Err(Refused::Stale), "another content is being claimed");
        assert_eq!(leases.by_entry(0, || false), Err(Refused::Stale));
        assert_eq!((value(&row, 0), value(&row, 1)), (0, 0));
    }

    #[test]
    fn serials_that_no_owner_hands_out_are_stale() {
        let (row, serials) = (words([0, 0]), words([0, 7]));
        let leases = leases(&row, &serials);
        assert_eq!(leases.by_serial(0, 0), Err(Refused::Stale), "never handed out");
        assert_eq!(leases.by_serial(1, 7), Err(Refused::Stale), "odd, and equal to the claim");
    }

    #[test]
    fn slots_beyond_the_row_or_the_serials_are_refused() {
        let (row, serials) = (words([0, 0]), words([2, 2]));
        assert_eq!(leases(&row, &serials).by_serial(2, 2), Err(Refused::NoSuchSlot));
        assert_eq!(leases(&row[..1], &serials).by_serial(1, 2), Err(Refused::NoSuchSlot));
        assert_eq!(leases(&row, &serials[..1]).by_serial(1, 2), Err(Refused::NoSuchSlot));
        assert_eq!(leases(&row, &serials).by_entry(u32::MAX, || true), Err(Refused::NoSuchSlot));
        leases(&row, &serials).release(u32::MAX);
    }

    #[test]
    fn a_count_stops_at_its_limit() {
        let (row, serials) = (words([MAX_LEASES - 1, u64::MAX]), words([2, 2]));
        let leases = leases(&row, &serials);
        assert_eq!(leases.by_serial(0, 2), Ok(()));
        assert_eq!(leases.by_serial(0, 2), Err(Refused::TooMany { max: u32::MAX }));
        assert_eq!(leases.by_serial(1, 2), Err(Refused::TooMany { max: u32::MAX }), "garbage");
        assert_eq!((value(&row, 0), value(&row, 1)), (MAX_LEASES, u64::MAX));
    }
}
