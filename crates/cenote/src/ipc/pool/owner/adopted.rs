//! Memory that a pool did not make and shares all the same: each piece is a segment of its own, with one
//! slot, whose number lies above those of the allocator. When nobody holds it any more it is not reused
//! but gone.

use crate::ipc::pool::owner::tlsf::allocator::SEGMENT_NUMBERS;
use crate::ipc::shared::wire::MAX_ADOPTED;
use crate::memory::slot::SegmentId;

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
    pub(crate) fn take(&mut self) -> Option<(u32, SegmentId)> {
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

#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
