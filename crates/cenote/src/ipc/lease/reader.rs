//! The reader's half of the lease protocol: steps R1 to R5 of `mod.rs`.

use std::marker::PhantomData;

use crate::error::Error;
use crate::intervals::CLAIM_LOOKS;
use crate::ipc::lease::serial;
use crate::sync::{AtomicU64, Ordering, fence, spin_loop};

/// The most leases that the threads of one process can have on one slot. Threads that try at the same moment overshoot
/// it by one each before they undo; that is far from wrapping the word.
pub(crate) const MAX_LEASES: u64 = 1 << 32;

/// The parts of the protocol that a model takes away, to show that each is needed.
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

/// The whole protocol: what the library uses. Only models use less.
#[derive(Debug)]
pub(crate) struct Shipped;

impl Orderings for Shipped {}

/// Why a slot was not leased. The process then has no lease from this attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The slot number is beyond the row or the serials.
    NoSuchSlot,
    /// This process has [`MAX_LEASES`] leases on the slot, or leases on the most slots that it may hold.
    TooMany { max: u32 },
    /// The owner did not finish its claim in time. The reader may try again; if the owner is dead, that never helps.
    Busy,
    /// The slot has other content by now.
    Stale,
}

impl Refused {
    /// The error for a caller that wanted a slot of `pool`.
    pub(crate) fn into_error(self, pool: &str, slot: u32, max: u32) -> Error {
        let pool = pool.to_owned();
        match self {
            // An owner that does not finish its claim is dead, or will have reused the slot.
            Refused::Stale | Refused::Busy => Error::Stale { pool },
            Refused::NoSuchSlot => Error::NoSuchSlot { pool, slot, max },
            Refused::TooMany { max } => Error::TooManyLeases { pool, max },
        }
    }
}

/// The leases of one process on the slots of one pool: its row, and the owner's serials.
#[derive(Debug)]
pub(crate) struct Leases<'a, O = Shipped> {
    row: &'a [AtomicU64],
    serials: &'a [AtomicU64],
    orderings: PhantomData<O>,
}

impl<'a, O: Orderings> Leases<'a, O> {
    /// `row` and `serials` have one word for each slot.
    #[inline]
    pub(crate) fn new(row: &'a [AtomicU64], serials: &'a [AtomicU64]) -> Self {
        Leases { row, serials, orderings: PhantomData }
    }

    /// Leases a slot that an entry of its owner's ring names. `unchanged` says whether the entry still has the sequence
    /// number under which the slot was read.
    #[inline(always)]
    pub(crate) fn by_entry(
        &self,
        slot: u32,
        unchanged: impl FnOnce() -> bool,
    ) -> Result<(), Refused> {
        self.acquire(slot, || if unchanged() { Ok(()) } else { Err(Refused::Stale) })
    }

    /// Leases a slot that a descriptor from elsewhere names, if the slot still has the descriptor's serial.
    pub(crate) fn by_serial(&self, slot: u32, expected: u64) -> Result<(), Refused> {
        let serial = word(self.serials, slot).ok_or(Refused::NoSuchSlot)?;
        // An odd serial would equal the one that the owner shows during a claim.
        if !serial::is_stable(expected) {
            return Err(Refused::Stale);
        }
        self.acquire(slot, || validate(serial, expected))
    }

    /// Ends one lease (R5).
    #[inline]
    pub(crate) fn release(&self, slot: u32) {
        if let Some(word) = word(self.row, slot) {
            word.fetch_sub(1, O::RELEASE);
        }
    }

    /// Ends one lease, without an atomic read-modify-write. No other thread may use the row meanwhile.
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

/// The word of a slot. Slot numbers are input, so there may be none.
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
    fn a_refused_attempt_leaves_no_lease() {
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
