//! Memory that a pool did not make and shares all the same: each piece is a segment of its own, with one
//! slot, whose number lies above those of the allocator. When nobody holds it any more it is not reused
//! but gone.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::Result;
use crate::ipc::pool::owner::Owner;
use crate::ipc::pool::owner::segment::Segment;
use crate::ipc::pool::owner::tlsf::allocator::{SEGMENT_NUMBERS, SegmentId, Slot};
use crate::ipc::pool::spared::Spared;
use crate::ipc::shared::wire::MAX_ADOPTED;
use crate::sys::mapping::Map;

/// Which of these slots are in use.
#[derive(Debug)]
pub(crate) struct Adopted {
    first_slot: u32,
    slots: Vec<Option<SegmentId>>,
    /// The last segment that was adopted: numbers go round, above those of the allocator.
    last: SegmentId,
    /// Segments of slots that were freed, still to be forgotten.
    gone: Vec<SegmentId>,
}

impl Adopted {
    /// None yet. Slot numbers from `first_slot` on are free for it.
    pub(crate) fn new(first_slot: u32) -> Adopted {
        let slots = vec![None; MAX_ADOPTED as usize];
        Adopted { first_slot, slots, last: SegmentId(u32::MAX), gone: Vec::new() }
    }

    /// How many are in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// A slot number, and a segment for it. `None` if all are in use.
    fn take(&mut self) -> Option<(u32, SegmentId)> {
        let at = self.slots.iter().position(Option::is_none)?;
        self.last = self.next_segment();
        self.slots[at] = Some(self.last);
        Some((self.first_slot + u32::try_from(at).ok()?, self.last))
    }

    /// A number that no segment has now, nor had lately: word of its end may be on its way.
    fn next_segment(&self) -> SegmentId {
        let mut next = self.last;
        loop {
            next = SegmentId(next.0.wrapping_add(1) | SEGMENT_NUMBERS);
            if !self.slots.contains(&Some(next)) {
                return next;
            }
        }
    }

    /// Whether a slot is one of these.
    #[inline]
    pub(crate) fn has(&self, slot: u32) -> bool {
        slot >= self.first_slot
    }

    /// Frees a slot that nobody holds any more.
    pub(crate) fn free(&mut self, slot: u32) {
        let freed = self.slots.get_mut((slot - self.first_slot) as usize).and_then(Option::take);
        self.gone.extend(freed);
    }

    /// A segment that is to be forgotten.
    #[inline]
    pub(crate) fn pop_gone(&mut self) -> Option<SegmentId> {
        self.gone.pop()
    }

    /// The slots in use.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = u32> {
        let used = (self.first_slot..).zip(&self.slots).filter(|(_, segment)| segment.is_some());
        used.map(|(slot, _)| slot)
    }

    /// Where a slot is.
    pub(crate) fn segment(&self, slot: u32) -> Option<SegmentId> {
        *self.slots.get(slot.checked_sub(self.first_slot)? as usize)?
    }
}

impl<S: Spared> Owner<S> {
    /// Shares memory that is sealed against writing and all there, of which `map` is a mapping to
    /// read. `None` if there are too many already.
    pub(crate) fn adopt(&self, fd: Arc<OwnedFd>, map: Arc<Map>) -> Result<Option<Slot>> {
        self.check_process()?;
        let mut state = self.swept(usize::MAX);
        let Some((index, segment)) = state.adopted.take() else { return Ok(None) };
        let slot = Slot { index, segment, offset: 0, capacity: map.len() };
        self.show_place(slot);
        let len = map.len();
        let shared = Segment { map, fd, len };
        state.attachers.push(segment, &shared);
        state.segments.insert(segment, shared);
        Ok(Some(slot))
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::error::Error;
    use crate::ipc::discovery::socket_dir::Entry;
    use crate::ipc::pool::config::TensorPoolConfig;
    use crate::ipc::pool::owner::state::Row;
    use crate::ipc::pool::reader::attachment::Attachment;
    use crate::ipc::shared::fd_checks;
    use crate::ipc::shared::wire::{MAX_SEGMENTS, row};
    use crate::ipc::shared::words::Words;
    use crate::sys::memfd;

    const PAGE: usize = 4096;

    /// What a pool of which no handle is made keeps.
    #[derive(Debug)]
    struct Nothing;

    impl Spared for Nothing {
        fn slot(&self) -> Slot {
            Slot { index: 0, segment: SegmentId(0), offset: 0, capacity: 0 }
        }

        fn bytes(&self) -> *const u8 {
            std::ptr::null()
        }

        fn len(&self) -> usize {
            0
        }

        fn owner(&self) -> Option<&Arc<Owner<Self>>> {
            None
        }

        fn attachment(&self) -> Option<&Arc<Attachment<Self>>> {
            None
        }
    }

    /// A pool that nobody can find, of `slots` pages.
    fn pool(slots: usize) -> Owner<Nothing> {
        let entry = Entry { name: "adopting".into(), uid: 1 };
        let config = TensorPoolConfig {
            pool_size: slots * PAGE,
            max_slots: slots,
            growth: PAGE,
            ..TensorPoolConfig::small()
        };
        let max_slots = config.check().unwrap();
        Owner::new(entry, config, max_slots).unwrap()
    }

    fn adopt(pool: &Owner<Nothing>) -> Option<Slot> {
        let fd = memfd::create("adopted", PAGE as u64).unwrap();
        memfd::forbid_writing(&fd).unwrap();
        let map = fd_checks::open_segment(&fd, PAGE as u64).unwrap();
        pool.adopt(Arc::new(fd), Arc::new(map)).unwrap()
    }

    #[test]
    fn a_slot_can_be_leased_until_its_owner_lets_go_of_it_and_is_then_another_one() {
        let pool = pool(2);
        let slot = adopt(&pool).unwrap();
        assert!(slot.index >= 2, "{slot:?}");
        let serial = pool.publish(slot.index);
        let (found, map) = pool.lease(slot.index, serial).unwrap();
        assert_eq!((found, map.len()), (slot, PAGE));

        pool.give_back(slot.index, None, true);
        assert_eq!(pool.stats().retired, 1, "it is leased");
        pool.release(slot.index);
        let stats = pool.stats();
        assert_eq!((stats.retired, stats.slots_in_use, stats.segments), (0, 0, 0));
        assert!(pool.state().segments.is_empty());
        assert_eq!(Arc::strong_count(&map), 1, "the pool has forgotten it");

        let next = adopt(&pool).unwrap();
        assert_eq!(next.index, slot.index);
        assert_ne!(next.segment, slot.segment);
        let stale = pool.lease(slot.index, serial).unwrap_err();
        assert!(matches!(stale, Error::Stale { .. }), "{stale}");
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let pool = pool(2);
        let slots: Vec<Slot> = (0..MAX_ADOPTED).map(|_| adopt(&pool).unwrap()).collect();
        assert!(adopt(&pool).is_none());
        assert_eq!(pool.stats().slots_in_use, MAX_ADOPTED as usize);
        pool.give_back(slots[7].index, None, true);
        assert_eq!(adopt(&pool).unwrap().index, slots[7].index);
    }

    #[test]
    fn a_pool_reaches_its_size_whatever_it_adopts() {
        let pool = pool(MAX_SEGMENTS);
        let alloc = |slots| (0..slots).for_each(|_| drop(pool.alloc(PAGE, || false).unwrap()));
        alloc(MAX_SEGMENTS - 10);
        assert_eq!((0..MAX_ADOPTED).filter_map(|_| adopt(&pool)).count(), MAX_ADOPTED as usize);
        alloc(10);
        let stats = pool.stats();
        assert_eq!((stats.bytes_reserved, stats.bytes_in_use), (stats.pool_size, stats.pool_size));
        assert_eq!(stats.slots_in_use, MAX_SEGMENTS + MAX_ADOPTED as usize);
    }

    #[test]
    fn whoever_holds_one_is_counted_and_the_last_to_go_ends_it() {
        let pool = pool(2);
        let slot = adopt(&pool).unwrap();
        let words = row::words(pool.max_slots);
        let (theirs, fd) = Words::create_for_peer("row", words).unwrap();
        let mut lease = vec![0_u8; words * 8];
        lease[(row::LEASES + slot.index as usize) * 8] = 1;
        std::fs::File::from(fd).write_all(&lease).unwrap();
        let id = pool.state().rows.insert(Row::Peer(theirs));

        pool.give_back(slot.index, None, true);
        let holders = pool.holders();
        assert_eq!(holders.len(), 1, "{holders:?}");
        assert_eq!((holders[0].slots, holders[0].retired_slots), (1, 1));

        let mut state = pool.state();
        state.rows.remove(id);
        state.sweep_all(pool.serials());
        assert!(state.segments.is_empty(), "at once: nobody need allocate for it");
        assert_eq!(state.take_gone().len(), 1);
    }

    #[test]
    fn numbers_of_segments_go_round_and_pass_over_those_in_use() {
        let mut adopted = Adopted::new(0);
        let first = adopted.take().unwrap().1;
        assert_eq!(first, SegmentId(SEGMENT_NUMBERS));
        adopted.last = SegmentId(u32::MAX - 1);
        let next: Vec<SegmentId> = (0..2).map(|_| adopted.take().unwrap().1).collect();
        assert_eq!(next, [SegmentId(u32::MAX), SegmentId(SEGMENT_NUMBERS + 1)]);
    }
}
