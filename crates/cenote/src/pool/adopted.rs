//! Memory that a pool did not make and shares all the same: each piece is a segment of its own, with one
//! slot, whose number lies above those of the allocator. When nobody holds it any more it is not reused
//! but gone.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::Result;
use crate::pool::allocator::{SegmentId, Slot};
use crate::pool::owner::{Owner, Spared};
use crate::pool::segment::Segment;
use crate::pool::wire::{MAX_ADOPTED, MAX_SEGMENTS};
use crate::region::Map;

/// Segments that are left for the pool's own memory.
const OWN_SEGMENTS: usize = MAX_SEGMENTS / 2;

/// The allocator counts its segments from zero, and never as far as this.
const FIRST_SEGMENT: u32 = 1 << 31;

/// Which of these slots are in use.
#[derive(Debug)]
pub(crate) struct Adopted {
    first_slot: u32,
    slots: Vec<Option<SegmentId>>,
    next_segment: u32,
    gone: Vec<SegmentId>,
}

impl Adopted {
    /// None yet. Slot numbers from `first_slot` on are free for it.
    pub(super) fn new(first_slot: u32) -> Adopted {
        let slots = vec![None; MAX_ADOPTED as usize];
        Adopted { first_slot, slots, next_segment: 0, gone: Vec::new() }
    }

    /// How many are in use.
    pub(super) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// A slot number, and a segment for it. `None` if all are in use.
    fn take(&mut self) -> Option<(u32, SegmentId)> {
        let at = self.slots.iter().position(Option::is_none)?;
        let id = SegmentId(FIRST_SEGMENT | self.next_segment);
        self.next_segment = (self.next_segment + 1) % FIRST_SEGMENT;
        self.slots[at] = Some(id);
        Some((self.first_slot + u32::try_from(at).ok()?, id))
    }

    /// Whether a slot is one of these.
    #[inline]
    pub(super) fn has(&self, slot: u32) -> bool {
        slot >= self.first_slot
    }

    /// Frees a slot that nobody holds any more.
    pub(super) fn free(&mut self, slot: u32) {
        let freed = self.slots.get_mut((slot - self.first_slot) as usize).and_then(Option::take);
        self.gone.extend(freed);
    }

    /// Whether there are segments to be forgotten.
    pub(super) fn any_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    pub(super) fn take_gone(&mut self) -> Vec<SegmentId> {
        std::mem::take(&mut self.gone)
    }

    /// Where a slot is.
    pub(super) fn segment(&self, slot: u32) -> Option<SegmentId> {
        *self.slots.get(slot.checked_sub(self.first_slot)? as usize)?
    }
}

impl<S: Spared> Owner<S> {
    /// Shares memory that is sealed against writing and all there, of which `map` is a mapping to
    /// read. `None` if there are too many already.
    pub(crate) fn adopt(&self, fd: Arc<OwnedFd>, map: Arc<Map>) -> Result<Option<Slot>> {
        self.check_process()?;
        let mut state = self.swept(usize::MAX);
        if state.segments.len() >= OWN_SEGMENTS + MAX_ADOPTED as usize {
            return Ok(None);
        }
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
