//! What an attached process has of a pool's slots: the row, in which it says which ones it holds, and a berth for
//! each. There it keeps what a handle of the slot was made of when it was given back, so that the next lease of it
//! need not make that again.

use std::sync::Arc;

use crate::ipc::lease::reader::{Leases, Refused, Shipped};
use crate::ipc::shared::wire::row;
use crate::ipc::shared::words::Words;
use crate::sync::{AtomicU64, fetch_to_read};

/// The row of this process, and a berth for each slot. Behind one lock, so that they change together.
#[derive(Debug)]
pub(crate) struct Holdings<S> {
    row: Words,
    berths: Box<[Berth<S>]>,
    /// How many slots are held, and how many may be.
    held: u32,
    max: u32,
    /// Whether spares are kept. Not in the beginning.
    keeps: bool,
}

#[derive(Debug)]
struct Berth<S> {
    /// How often the slot is leased: as the row says, but the row is memory that its owner gave us.
    leases: u64,
    spare: Option<Arc<S>>,
    /// Where the bytes of the slot were last seen: a hint, never followed.
    seen: usize,
}

impl<S> Holdings<S> {
    /// The memory that each slot takes.
    pub(crate) const BYTES_PER_SLOT: usize = size_of::<Berth<S>>();

    /// None yet, and never more than `max` of so many slots.
    pub(crate) fn new(row: Words, slots: u32, max: u32) -> Self {
        let berths = (0..slots).map(|_| Berth { leases: 0, spare: None, seen: 0 }).collect();
        Holdings { row, berths, held: 0, max, keeps: false }
    }

    /// Leases a slot, by `lease`; slot numbers are input.
    #[inline(always)]
    pub(crate) fn lease(
        &mut self,
        slot: u32,
        serials: &[AtomicU64],
        lease: impl FnOnce(Leases<'_, Shipped>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let berth = self.berths.get_mut(slot as usize).ok_or(Refused::NoSuchSlot)?;
        let is_new = berth.leases == 0;
        if is_new && self.held >= self.max {
            return Err(Refused::TooMany { max: self.max });
        }
        lease(Leases::new(&self.row.get()[row::LEASES..], serials))?;
        berth.leases += 1;
        self.held += u32::from(is_new);
        Ok(())
    }

    /// Leases a slot that has a spare, and takes that: for an entry that is `unchanged`, and if the spare is the `right`
    /// one. `None`, and nothing has changed, if there is more to it.
    #[inline(always)]
    pub(crate) fn lease_again(
        &mut self,
        slot: u32,
        unchanged: impl FnOnce() -> bool,
        right: impl FnOnce(&S) -> bool,
    ) -> Option<Arc<S>> {
        let berth = self.berths.get_mut(slot as usize)?;
        // The first bytes are on their way here while the rest is done, most likely.
        fetch_to_read(std::ptr::without_provenance(berth.seen));
        let spare = berth.spare.as_deref()?;
        let is_new = berth.leases == 0;
        if is_new && self.held >= self.max {
            return None;
        }
        let leases = Leases::<Shipped>::new(&self.row.get()[row::LEASES..], &[]);
        leases.by_entry(slot, unchanged).ok()?;
        if !right(spare) {
            leases.release_alone(slot);
            return None;
        }
        berth.leases += 1;
        self.held += u32::from(is_new);
        berth.spare.take()
    }

    /// Gives a lease back. Tells where the spare of the slot goes, if it is to be kept.
    #[inline]
    pub(crate) fn end_lease(&mut self, slot: u32) -> Option<&mut Option<Arc<S>>> {
        let berth = self.berths.get_mut(slot as usize).filter(|berth| berth.leases > 0)?;
        Leases::<Shipped>::new(&self.row.get()[row::LEASES..], &[]).release_alone(slot);
        berth.leases -= 1;
        self.held -= u32::from(berth.leases == 0);
        self.keeps.then_some(&mut berth.spare)
    }

    #[inline]
    pub(crate) fn take_spare(&mut self, slot: u32) -> Option<Arc<S>> {
        self.berths.get_mut(slot as usize)?.spare.take()
    }

    /// Notes where the bytes of a slot are.
    pub(crate) fn note(&mut self, slot: u32, at: *const u8) {
        if let Some(berth) = self.berths.get_mut(slot as usize) {
            berth.seen = at.addr();
        }
    }

    /// Keeps what is given back, from here on.
    pub(crate) fn keep_spares(&mut self) {
        self.keeps = true;
    }

    /// Keeps nothing any more; gives back what was kept.
    pub(crate) fn shut(&mut self) -> Vec<Arc<S>> {
        self.keeps = false;
        self.take_spares()
    }

    /// All that was kept.
    pub(crate) fn take_spares(&mut self) -> Vec<Arc<S>> {
        self.berths.iter_mut().filter_map(|berth| berth.spare.take()).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    /// Of three slots, two may be held.
    fn holdings() -> (Holdings<()>, [AtomicU64; 3]) {
        let (row, _fd) = Words::create("cenote-test", row::words(3)).expect("a memfd");
        (Holdings::new(row, 3, 2), [(); 3].map(|()| AtomicU64::new(2)))
    }

    fn lease(holdings: &mut Holdings<()>, serials: &[AtomicU64], slot: u32) -> Result<(), Refused> {
        holdings.lease(slot, serials, |leases| leases.by_serial(slot, 2))
    }

    fn row(holdings: &Holdings<()>) -> Vec<u64> {
        let row = &holdings.row.get()[row::LEASES..];
        row.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn slots_are_counted_and_not_leases() {
        let (mut holdings, serials) = holdings();
        for slot in [0, 0, 1, 1] {
            assert_eq!(lease(&mut holdings, &serials, slot), Ok(()));
        }
        assert_eq!(lease(&mut holdings, &serials, 2), Err(Refused::TooMany { max: 2 }));
        assert_eq!(row(&holdings), [2, 2, 0]);
        holdings.end_lease(0);
        assert_eq!(lease(&mut holdings, &serials, 2), Err(Refused::TooMany { max: 2 }));
        holdings.end_lease(0);
        assert_eq!(lease(&mut holdings, &serials, 2), Ok(()));
        assert_eq!(row(&holdings), [0, 2, 1]);
    }

    #[test]
    fn what_is_refused_is_not_counted_and_what_was_not_leased_is_not_given_back() {
        let (mut holdings, serials) = holdings();
        serials[0].store(4, Ordering::Relaxed);
        assert_eq!(lease(&mut holdings, &serials, 0), Err(Refused::Stale));
        assert_eq!(lease(&mut holdings, &serials, 3), Err(Refused::NoSuchSlot));
        assert!(holdings.end_lease(0).is_none() && holdings.end_lease(u32::MAX).is_none());
        assert_eq!((holdings.held, row(&holdings)), (0, vec![0, 0, 0]));
    }

    #[test]
    fn an_owner_that_writes_the_row_changes_no_count() {
        let (mut holdings, serials) = holdings();
        assert_eq!(lease(&mut holdings, &serials, 0), Ok(()));
        holdings.row.get()[row::LEASES].store(0, Ordering::Relaxed);
        holdings.end_lease(0);
        assert_eq!(holdings.held, 0);
        assert_eq!(lease(&mut holdings, &serials, 1), Ok(()));
        assert_eq!(lease(&mut holdings, &serials, 2), Ok(()));
    }

    #[test]
    fn spares_are_kept_while_they_may_be() {
        let (mut holdings, serials) = holdings();
        assert_eq!(lease(&mut holdings, &serials, 0), Ok(()));
        assert!(holdings.end_lease(0).is_none());
        holdings.keep_spares();
        assert_eq!(lease(&mut holdings, &serials, 0), Ok(()));
        *holdings.end_lease(0).expect("a berth") = Some(Arc::new(()));
        assert!(holdings.take_spare(0).is_some() && holdings.shut().is_empty());
    }

    #[test]
    fn a_spare_comes_with_the_lease_or_nothing_has_changed() {
        let (mut holdings, serials) = holdings();
        holdings.keep_spares();
        assert_eq!(lease(&mut holdings, &serials, 0), Ok(()));
        *holdings.end_lease(0).expect("a berth") = Some(Arc::new(()));
        for (slot, unchanged, right) in
            [(1, true, true), (9, true, true), (0, false, true), (0, true, false)]
        {
            assert_eq!(holdings.lease_again(slot, || unchanged, |()| right), None);
            assert_eq!((holdings.held, row(&holdings)), (0, vec![0, 0, 0]));
        }
        let others = [1, 2].map(|slot| lease(&mut holdings, &serials, slot));
        assert_eq!((others, holdings.lease_again(0, || true, |()| true)), ([Ok(()); 2], None));
        holdings.end_lease(2);
        assert!(holdings.lease_again(0, || true, |()| true).is_some());
        assert_eq!((holdings.held, row(&holdings)), (2, vec![1, 1, 0]));
        assert_eq!(holdings.lease_again(0, || true, |()| true), None, "its spare is gone");
    }
}
