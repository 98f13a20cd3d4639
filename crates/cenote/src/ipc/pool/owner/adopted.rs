//! The slots of adopted memory: memory that a pool did not make and shares all the same.
//!
//! Each piece is one segment with one slot. The slot numbers lie above those of the allocator. Once no process holds
//! the slot, the pool removes the segment; it does not reuse it.

use crate::ipc::pool::owner::tlsf::allocator::SEGMENT_NUMBERS;
use crate::ipc::shared::wire::MAX_ADOPTED;
use crate::memory::slot::SegmentId;

/// The slots of adopted memory.
#[derive(Debug)]
pub(crate) struct Adopted {
    first_slot: u32,
    slots: Vec<Option<SegmentId>>,
    /// The last adopted segment. Its number lies above those of the allocator, and wraps there.
    last: SegmentId,
    /// The segments of freed slots, which the pool still has to remove.
    gone: Vec<SegmentId>,
}

impl Adopted {
    /// No slots in use. Their numbers start at `first_slot`.
    pub(crate) fn new(first_slot: u32) -> Adopted {
        let slots = vec![None; MAX_ADOPTED as usize];
        Adopted { first_slot, slots, last: SegmentId(u32::MAX), gone: Vec::new() }
    }

    /// The number of slots in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Takes a slot number and a segment number. `None` if all slots are in use.
    pub(crate) fn take(&mut self) -> Option<(u32, SegmentId)> {
        let at = self.slots.iter().position(Option::is_none)?;
        self.last = self.next_segment();
        self.slots[at] = Some(self.last);
        Some((self.first_slot + u32::try_from(at).ok()?, self.last))
    }

    /// A number that no segment has now or had lately: a packet about its removal may still be in a socket.
    fn next_segment(&self) -> SegmentId {
        let mut next = self.last;
        loop {
            next = SegmentId(next.0.wrapping_add(1) | SEGMENT_NUMBERS);
            if !self.slots.contains(&Some(next)) {
                return next;
            }
        }
    }

    /// Whether a slot is one of adopted memory.
    #[inline]
    pub(crate) fn has(&self, slot: u32) -> bool {
        slot >= self.first_slot
    }

    /// Frees a slot that no process holds any more.
    pub(crate) fn free(&mut self, slot: u32) {
        let freed = self.slots.get_mut((slot - self.first_slot) as usize).and_then(Option::take);
        self.gone.extend(freed);
    }

    /// A segment that the pool has to remove.
    #[inline]
    pub(crate) fn pop_gone(&mut self) -> Option<SegmentId> {
        self.gone.pop()
    }

    /// The slots in use.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = u32> {
        let used = (self.first_slot..).zip(&self.slots).filter(|(_, segment)| segment.is_some());
        used.map(|(slot, _)| slot)
    }

    /// The segment of a slot in use.
    pub(crate) fn segment(&self, slot: u32) -> Option<SegmentId> {
        *self.slots.get(slot.checked_sub(self.first_slot)? as usize)?
    }
}

#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn segment_numbers_wrap_and_skip_those_in_use() {
        let mut adopted = Adopted::new(0);
        let first = adopted.take().unwrap().1;
        assert_eq!(first, SegmentId(SEGMENT_NUMBERS));
        adopted.last = SegmentId(u32::MAX - 1);
        let next: Vec<SegmentId> = (0..2).map(|_| adopted.take().unwrap().1).collect();
        assert_eq!(next, [SegmentId(u32::MAX), SegmentId(SEGMENT_NUMBERS + 1)]);
    }
}
