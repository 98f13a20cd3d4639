//! The rows that the owner scans: one for each reader, and one for the owner itself.
//!
//! A row has one word for each slot. In a pool it is shared memory that the reader writes, so its words are input.
//! Any word but zero means that the slot is leased. A row that is too short for a slot has no lease on it. Dropping a
//! row ends its leases; nothing else has to be repaired.

use crate::ipc::lease::reader::{Orderings, word};
use crate::sync::{AtomicU64, Ordering};

/// The number of a row in its pool; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RowId(u64);

/// All rows of one pool.
#[derive(Debug)]
pub(crate) struct Rows<R> {
    /// Dense and unordered: scanning is the hot path, removal is not.
    rows: Vec<(RowId, R)>,
    next: u64,
}

impl<R: AsRef<[AtomicU64]>> Rows<R> {
    pub(crate) fn new() -> Self {
        Rows { rows: Vec::new(), next: 0 }
    }

    /// Adds a row. From now on, the owner does not reuse slots that are leased in it.
    pub(crate) fn insert(&mut self, row: R) -> RowId {
        let id = RowId(self.next);
        self.next += 1;
        self.rows.push((id, row));
        id
    }

    /// Drops a row and all leases in it. The caller sweeps the retired slots afterwards.
    pub(crate) fn remove(&mut self, id: RowId) -> Option<R> {
        let at = self.rows.iter().position(|(row, _)| *row == id)?;
        Some(self.rows.swap_remove(at).1)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether any row has a lease on `slot`: steps O2 and O5.
    #[inline]
    pub(crate) fn is_held<O: Orderings>(&self, slot: u32) -> bool {
        self.rows.iter().any(|(_, row)| count(row, slot, O::SCAN) != 0)
    }

    /// All rows, unordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RowId, &R)> {
        self.rows.iter().map(|(id, row)| (*id, row))
    }

    /// The rows that have a lease on `slot`.
    pub(crate) fn holders(&self, slot: u32) -> impl Iterator<Item = RowId> {
        self.iter().filter(move |(_, row)| holds(*row, slot)).map(|(id, _)| id)
    }
}

/// Whether a row has a lease on `slot`, for reports: the answer may be outdated at once.
pub(crate) fn holds(row: &impl AsRef<[AtomicU64]>, slot: u32) -> bool {
    count(row, slot, Ordering::Relaxed) != 0
}

fn count(row: &impl AsRef<[AtomicU64]>, slot: u32, ordering: Ordering) -> u64 {
    word(row.as_ref(), slot).map_or(0, |word| word.load(ordering))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ipc::lease::reader::Shipped;

    fn row(values: &[u64]) -> Vec<AtomicU64> {
        values.iter().copied().map(AtomicU64::new).collect()
    }

    #[test]
    fn dropping_a_row_drops_its_leases_and_no_others() {
        let mut rows = Rows::new();
        let dying = rows.insert(row(&[3, 1]));
        let living = rows.insert(row(&[0, 1]));
        assert!(rows.is_held::<Shipped>(0) && rows.is_held::<Shipped>(1));
        assert!(rows.remove(dying).is_some());
        assert!(!rows.is_held::<Shipped>(0) && rows.is_held::<Shipped>(1));
        assert!(rows.remove(dying).is_none(), "an id is not reused");
        assert_eq!(rows.holders(1).collect::<Vec<_>>(), [living]);
        assert_eq!(rows.len(), 1);
    }

    #[test]
    fn garbage_holds_and_a_short_row_does_not() {
        let mut rows = Rows::new();
        rows.insert(row(&[u64::MAX]));
        rows.insert(row(&[u64::MAX]));
        assert!(rows.is_held::<Shipped>(0));
        assert!(!rows.is_held::<Shipped>(1) && !rows.is_held::<Shipped>(u32::MAX));
    }
}
