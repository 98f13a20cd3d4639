//! The leases of this process on the slots of one pool, and the buffers that it keeps for its next leases.
//!
//! Two things change together, so they are behind one lock: the row, in which the owner sees which slots this process
//! holds, and a record for each slot. The record keeps the buffer of a slot after its lease has ended. The next lease
//! of the slot then makes no new buffer.

use std::sync::Arc;

use crate::ipc::lease::reader::{Leases, Refused, Shipped};
use crate::ipc::shared::wire::row;
use crate::ipc::shared::words::Words;
use crate::sync::{AtomicU64, fetch_to_read};

/// The row of this process, and a record for each slot. `T` is the buffer.
#[derive(Debug)]
pub(crate) struct LeaseTable<T> {
    row: Words,
    records: Box<[SlotRecord<T>]>,
    /// How many slots are leased.
    leased_slots: u32,
    /// How many slots may be leased.
    max: u32,
    /// Whether buffers are kept. `false` at the start.
    keeps: bool,
}

#[derive(Debug)]
struct SlotRecord<T> {
    /// How many leases this process has on the slot. The row says the same, but the row is memory that the owner gave
    /// to this process, so it is not trusted for this.
    leases: u64,
    buffer: Option<Arc<T>>,
    /// The last known address of the slot's bytes: a hint for prefetching, never dereferenced.
    address: usize,
}

impl<T> LeaseTable<T> {
    /// The private memory that each slot takes.
    pub(crate) const BYTES_PER_SLOT: usize = size_of::<SlotRecord<T>>();

    /// No leases yet, and never more than `max` of these slots at once.
    pub(crate) fn new(row: Words, slots: u32, max: u32) -> Self {
        let records =
            (0..slots).map(|_| SlotRecord { leases: 0, buffer: None, address: 0 }).collect();
        LeaseTable { row, records, leased_slots: 0, max, keeps: false }
    }

    /// Leases a slot by calling `lease`. The slot number is input and is checked.
    #[inline(always)]
    pub(crate) fn lease(
        &mut self,
        slot: u32,
        serials: &[AtomicU64],
        lease: impl FnOnce(Leases<'_, Shipped>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let record = self.records.get_mut(slot as usize).ok_or(Refused::NoSuchSlot)?;
        let is_new = record.leases == 0;
        if is_new && self.leased_slots >= self.max {
            return Err(Refused::TooMany { max: self.max });
        }
        lease(Leases::new(&self.row.get()[row::LEASES..], serials))?;
        record.leases += 1;
        self.leased_slots += u32::from(is_new);
        Ok(())
    }

    /// Leases a slot whose buffer is kept, and takes the buffer.
    ///
    /// Returns `None`, and changes nothing, if no buffer is kept, if the ring entry is not `unchanged`, if the buffer is
    /// not the `right` one, or if too many slots are leased.
    #[inline(always)]
    pub(crate) fn lease_again(
        &mut self,
        slot: u32,
        unchanged: impl FnOnce() -> bool,
        right: impl FnOnce(&T) -> bool,
    ) -> Option<Arc<T>> {
        let record = self.records.get_mut(slot as usize)?;
        // Prefetches the first bytes of the slot while the rest is done. Without this, row `hand-off/round trip, Image`
        // of the benchmarks takes 14 to 20 % longer.
        fetch_to_read(std::ptr::without_provenance(record.address));
        let buffer = record.buffer.as_deref()?;
        let is_new = record.leases == 0;
        if is_new && self.leased_slots >= self.max {
            return None;
        }
        let leases = Leases::<Shipped>::new(&self.row.get()[row::LEASES..], &[]);
        leases.by_entry(slot, unchanged).ok()?;
        if !right(buffer) {
            leases.release_alone(slot);
            return None;
        }
        record.leases += 1;
        self.leased_slots += u32::from(is_new);
        record.buffer.take()
    }

    /// Ends a lease. Returns the place for the slot's buffer, if buffers are kept.
    #[inline]
    pub(crate) fn end_lease(&mut self, slot: u32) -> Option<&mut Option<Arc<T>>> {
        let record = self.records.get_mut(slot as usize).filter(|record| record.leases > 0)?;
        Leases::<Shipped>::new(&self.row.get()[row::LEASES..], &[]).release_alone(slot);
        record.leases -= 1;
        self.leased_slots -= u32::from(record.leases == 0);
        self.keeps.then_some(&mut record.buffer)
    }

    #[inline]
    pub(crate) fn take_buffer(&mut self, slot: u32) -> Option<Arc<T>> {
        self.records.get_mut(slot as usize)?.buffer.take()
    }

    /// Notes where the bytes of a slot are mapped.
    pub(crate) fn note_address(&mut self, slot: u32, at: *const u8) {
        if let Some(record) = self.records.get_mut(slot as usize) {
            record.address = at.addr();
        }
    }

    /// From now on, buffers are kept.
    pub(crate) fn keep_buffers(&mut self) {
        self.keeps = true;
    }

    /// From now on, no buffers are kept. Returns the kept ones.
    pub(crate) fn stop_keeping(&mut self) -> Vec<Arc<T>> {
        self.keeps = false;
        self.take_buffers()
    }

    /// Takes all kept buffers.
    pub(crate) fn take_buffers(&mut self) -> Vec<Arc<T>> {
        self.records.iter_mut().filter_map(|record| record.buffer.take()).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    /// Of three slots, two may be leased at once.
    fn table() -> (LeaseTable<()>, [AtomicU64; 3]) {
        let (row, _fd) = Words::create("cenote-test", row::words(3)).expect("a memfd");
        (LeaseTable::new(row, 3, 2), [(); 3].map(|()| AtomicU64::new(2)))
    }

    fn lease(table: &mut LeaseTable<()>, serials: &[AtomicU64], slot: u32) -> Result<(), Refused> {
        table.lease(slot, serials, |leases| leases.by_serial(slot, 2))
    }

    fn row(table: &LeaseTable<()>) -> Vec<u64> {
        let row = &table.row.get()[row::LEASES..];
        row.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn slots_are_counted_and_not_leases() {
        let (mut table, serials) = table();
        for slot in [0, 0, 1, 1] {
            assert_eq!(lease(&mut table, &serials, slot), Ok(()));
        }
        assert_eq!(lease(&mut table, &serials, 2), Err(Refused::TooMany { max: 2 }));
        assert_eq!(row(&table), [2, 2, 0]);
        table.end_lease(0);
        assert_eq!(lease(&mut table, &serials, 2), Err(Refused::TooMany { max: 2 }));
        table.end_lease(0);
        assert_eq!(lease(&mut table, &serials, 2), Ok(()));
        assert_eq!(row(&table), [0, 2, 1]);
    }

    #[test]
    fn refused_leases_are_not_counted_and_only_leases_end() {
        let (mut table, serials) = table();
        serials[0].store(4, Ordering::Relaxed);
        assert_eq!(lease(&mut table, &serials, 0), Err(Refused::Stale));
        assert_eq!(lease(&mut table, &serials, 3), Err(Refused::NoSuchSlot));
        assert!(table.end_lease(0).is_none() && table.end_lease(u32::MAX).is_none());
        assert_eq!((table.leased_slots, row(&table)), (0, vec![0, 0, 0]));
    }

    #[test]
    fn an_owner_that_writes_the_row_changes_no_count() {
        let (mut table, serials) = table();
        assert_eq!(lease(&mut table, &serials, 0), Ok(()));
        table.row.get()[row::LEASES].store(0, Ordering::Relaxed);
        table.end_lease(0);
        assert_eq!(table.leased_slots, 0);
        assert_eq!(lease(&mut table, &serials, 1), Ok(()));
        assert_eq!(lease(&mut table, &serials, 2), Ok(()));
    }

    #[test]
    fn buffers_are_kept_while_the_table_keeps_them() {
        let (mut table, serials) = table();
        assert_eq!(lease(&mut table, &serials, 0), Ok(()));
        assert!(table.end_lease(0).is_none());
        table.keep_buffers();
        assert_eq!(lease(&mut table, &serials, 0), Ok(()));
        *table.end_lease(0).expect("a place") = Some(Arc::new(()));
        assert!(table.take_buffer(0).is_some() && table.stop_keeping().is_empty());
    }

    #[test]
    fn a_lease_takes_the_kept_buffer_or_changes_nothing() {
        let (mut table, serials) = table();
        table.keep_buffers();
        assert_eq!(lease(&mut table, &serials, 0), Ok(()));
        *table.end_lease(0).expect("a place") = Some(Arc::new(()));
        for (slot, unchanged, right) in
            [(1, true, true), (9, true, true), (0, false, true), (0, true, false)]
        {
            assert_eq!(table.lease_again(slot, || unchanged, |()| right), None);
            assert_eq!((table.leased_slots, row(&table)), (0, vec![0, 0, 0]));
        }
        let others = [1, 2].map(|slot| lease(&mut table, &serials, slot));
        assert_eq!((others, table.lease_again(0, || true, |()| true)), ([Ok(()); 2], None));
        table.end_lease(2);
        assert!(table.lease_again(0, || true, |()| true).is_some());
        assert_eq!((table.leased_slots, row(&table)), (2, vec![1, 1, 0]));
        assert_eq!(table.lease_again(0, || true, |()| true), None, "its buffer is taken");
    }
}
