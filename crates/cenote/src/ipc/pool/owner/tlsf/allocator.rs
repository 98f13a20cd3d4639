//! The allocator: which bytes of which segment belong to which slot. Private to the owner.
//!
//! It has two layers:
//!
//! 1. *Kept* blocks. A freed block stays whole and keeps its slot number. The next request of its size class gets it
//!    first, so a loop over one size is a pop and a push.
//! 2. *Holes*: TLSF (see [`bins`]), with exact cuts and immediate joining.
//!
//! If no hole serves a request, all kept blocks become holes, joined with their neighbours, and the holes are searched
//! again. Each freed block is joined at most once per `free`, so the amortised cost is constant. In one `alloc` the
//! number of kept blocks bounds it.
//!
//! # Guarantees
//!
//! - A slot has at least the requested bytes, starts at a multiple of the alignment, and is at most an eighth longer
//!   than the request rounded up to the alignment.
//! - `alloc` fails with [`Full::Bytes`] only if no gap between the slots in use, in any one segment, is as long as the
//!   request rounded up. So a segment of `n` times a size holds `n` slots of that size. The last resort for this is a
//!   walk over the holes of one size class, when there is no larger hole.
//! - `alloc` fails with [`Full::Slots`] only if `max_slots` are in use.
//! - `alloc` and `free` never allocate memory.
//!
//! Segments that devices use are handed out [whole](Allocator::whole) or not at all. The kernel tracks the use by
//! devices and CPU for a whole segment: two slots in one would wait for each other's devices and flush each other's
//! caches. Then `alloc` also fails with [`Full::Bytes`] if all free segments are more than an eighth too long.
//!
//! # Reasons
//!
//! - Joining is deferred because video and lidar request the same few sizes for ever. A general allocator would join a
//!   block between two frames, only to cut it again the same way.
//! - Cuts are exact because rounding every size up to its class would turn a pool for ten frames into one for nine.

use crate::ipc::pool::owner::tlsf::bins::{Bins, Class};
use crate::ipc::pool::owner::tlsf::blocks::{Block, BlockId, BlockState, Blocks};
use crate::memory::slot::{SegmentId, Slot};

/// Slot numbers stay below this, so that the table of blocks can number two blocks per slot.
pub(crate) const MAX_SLOTS: u32 = 1 << 24;

/// Segments are numbered below this. Adopted memory has the numbers above.
pub(crate) const SEGMENT_NUMBERS: u32 = 1 << 31;

/// Why there is no slot for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// No segment has enough bytes in one piece. Another segment would help.
    Bytes,
    /// Every slot number is in use. Another segment would not help.
    Slots,
}

/// What is in use: in bytes, unless a field says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// All segments.
    pub(crate) reserved: usize,
    /// Capacity of the slots in use.
    pub(crate) in_use: usize,
    /// The requested lengths of those slots.
    pub(crate) requested: usize,
    /// The most that was ever in use.
    pub(crate) peak: usize,
    /// Number of slots in use.
    pub(crate) slots: u32,
}

impl Stats {
    /// Bytes in use that were not requested: alignment, and blocks handed out whole.
    pub(crate) fn waste(&self) -> usize {
        self.in_use - self.requested
    }
}

#[derive(Debug)]
pub(crate) struct Segment {
    id: SegmentId,
    /// The block at offset zero. It stays the same one, because cutting and joining keep the front block. `None` once the
    /// segment is removed; then the next segment can have its place.
    pub(crate) first: Option<BlockId>,
    /// In units.
    pub(crate) size: usize,
    /// In use, in units.
    used: usize,
    /// Slots in use.
    slots: u32,
}

/// Hands out ranges of segments. One owner, private memory, no locks.
#[derive(Debug)]
pub(crate) struct Allocator {
    /// One unit is `1 << unit_log2` bytes: the alignment. All sizes inside are in units.
    unit_log2: u32,
    /// A slot is a whole segment.
    whole: bool,
    max_slots: u32,
    pub(crate) blocks: Blocks,
    kept: Bins,
    holes: Bins,
    /// The block of each slot number, if a block has it.
    slots: Box<[Option<BlockId>]>,
    /// Slot numbers that no block has.
    pub(crate) vacant: Vec<u32>,
    /// Blocks name their segment by its place here.
    pub(crate) segments: Vec<Segment>,
    next_segment: u32,
    stats: Stats,
}

impl Allocator {
    /// At most `max_slots` slots (no more than [`MAX_SLOTS`]), all aligned to `alignment`, which is
    /// rounded up to a power of two.
    pub(crate) fn new(max_slots: u32, alignment: usize) -> Self {
        let max_slots = max_slots.min(MAX_SLOTS);
        Allocator {
            unit_log2: usize::BITS - alignment.saturating_sub(1).leading_zeros(),
            whole: false,
            max_slots,
            blocks: Blocks::with_capacity(blocks_for(max_slots, 1)),
            kept: Bins::new(),
            holes: Bins::new(),
            slots: vec![None; max_slots as usize].into(),
            vacant: (0..max_slots).rev().collect(),
            segments: Vec::new(),
            next_segment: 0,
            stats: Stats::default(),
        }
    }

    /// The same, with segments that are not cut: each is one slot.
    pub(crate) fn whole(max_slots: u32, alignment: usize) -> Self {
        Allocator { whole: true, ..Allocator::new(max_slots, alignment) }
    }

    /// The present numbers.
    pub(crate) fn stats(&self) -> Stats {
        self.stats
    }

    /// The private memory for each slot number: two blocks, their numbers when they are vacant, and the slot number.
    pub(crate) const BYTES_PER_SLOT: usize =
        2 * size_of::<Block>() + 3 * size_of::<BlockId>() + size_of::<u32>();

    /// Whether every slot number is in use.
    pub(crate) fn is_full(&self) -> bool {
        self.stats.slots == self.max_slots
    }

    /// The numbers of all slots in use.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = u32> {
        (0..self.max_slots).filter(|index| self.used(*index).is_some())
    }

    /// The longest free piece, in bytes. Exact only after an allocation has failed with [`Full::Bytes`], which joins the kept
    /// blocks.
    pub(crate) fn longest_hole(&self) -> usize {
        let head = self.holes.last();
        let class = std::iter::successors(head, |&id| self.blocks[id].older);
        class.map(|id| self.blocks[id].size << self.unit_log2).max().unwrap_or(0)
    }

    /// The bytes not in use in segments that could hold a slot of `len` bytes.
    pub(crate) fn free_for(&self, len: usize) -> usize {
        let size = self.units(len);
        let large = |segment: &&Segment| segment.first.is_some() && self.suits(segment.size, size);
        let free = self.segments.iter().filter(large).map(|segment| segment.size - segment.used);
        free.sum::<usize>() << self.unit_log2
    }

    /// A slot that is in use.
    pub(crate) fn slot(&self, index: u32) -> Option<Slot> {
        self.used(index).map(|id| self.describe(index, id))
    }

    fn used(&self, index: u32) -> Option<BlockId> {
        let id = (*self.slots.get(index as usize)?)?;
        matches!(self.blocks[id].state, BlockState::Used(_)).then_some(id)
    }
}

/// Alloc and free.
impl Allocator {
    /// Allocates a slot of at least `len` bytes. Zero counts as one.
    pub(crate) fn alloc(&mut self, len: usize) -> Result<Slot, Full> {
        if self.is_full() {
            return Err(Full::Slots);
        }
        let size = self.units(len);
        let (index, id) = match self.take_kept(size) {
            Some(kept) => kept,
            None => self.take_hole(size).ok_or(Full::Bytes)?,
        };
        self.blocks[id].state = BlockState::Used(index);
        self.blocks[id].requested = len;
        self.count_alloc(id);
        Ok(self.describe(index, id))
    }

    /// Frees a slot in use. Ignores any other number.
    pub(crate) fn free(&mut self, index: u32) {
        let Some(id) = self.used(index) else {
            debug_assert!(false, "slot {index} is not in use");
            return;
        };
        self.count_free(id);
        self.blocks[id].state = BlockState::Kept(index);
        self.kept.push(&mut self.blocks, id);
    }

    /// The block of this size class that was freed last, if it is long enough. It cannot be too long, being of one class.
    fn take_kept(&mut self, size: usize) -> Option<(u32, BlockId)> {
        let id = self.kept.head(Class::of(size))?;
        let block = &self.blocks[id];
        let BlockState::Kept(index) = block.state else { return None };
        if block.size < size {
            return None;
        }
        self.kept.remove(&mut self.blocks, id);
        Some((index, id))
    }

    /// Cuts a new slot from a hole. The caller has made sure that a slot number is free.
    fn take_hole(&mut self, size: usize) -> Option<(u32, BlockId)> {
        if self.vacant.is_empty() {
            self.join_kept();
        }
        let id = self.find_hole(size).or_else(|| {
            self.join_kept();
            self.find_hole(size).or_else(|| self.search_hole(size))
        })?;
        let index = self.vacant.pop()?;
        self.holes.remove(&mut self.blocks, id);
        self.cut(id, size);
        self.slots[index as usize] = Some(id);
        Some((index, id))
    }

    /// Finds a hole of at least this size in constant time: the newest one of its class if that fits, or one of any
    /// larger class.
    pub(crate) fn find_hole(&self, size: usize) -> Option<BlockId> {
        if self.whole {
            return self.find_whole(size);
        }
        let own = self.holes.head(Class::of(size));
        own.filter(|&id| self.blocks[id].size >= size)
            .or_else(|| self.holes.first_from(Class::from(size)))
    }

    /// Walks the holes of this size class: the only ones that `find_hole` may have missed.
    fn search_hole(&self, size: usize) -> Option<BlockId> {
        let head = self.holes.head(Class::of(size));
        let mut class = std::iter::successors(head, |&id| self.blocks[id].older);
        class.find(|&id| self.suits(self.blocks[id].size, size))
    }

    /// Whether a hole of `hole` units suits a slot of `size`.
    fn suits(&self, hole: usize, size: usize) -> bool {
        hole >= size && (!self.whole || hole - size <= size / 8)
    }

    /// A free segment that is not too long.
    fn find_whole(&self, size: usize) -> Option<BlockId> {
        let firsts = self.segments.iter().filter_map(|segment| segment.first);
        let mut free = firsts.filter(|&id| matches!(self.blocks[id].state, BlockState::Hole));
        free.find(|&id| self.suits(self.blocks[id].size, size))
    }

    /// Returns the part of a block beyond `size` to the holes, unless that is an eighth or less.
    fn cut(&mut self, id: BlockId, size: usize) {
        if self.whole || self.blocks[id].size - size <= size / 8 {
            return;
        }
        if let Some(rest) = self.blocks.split(id, size) {
            self.holes.push(&mut self.blocks, rest);
        }
    }

    /// Turns every kept block into a hole, or into part of one, and frees its slot number.
    pub(crate) fn join_kept(&mut self) {
        while let Some(id) = self.kept.first_from(Class::of(1)) {
            self.kept.remove(&mut self.blocks, id);
            if let BlockState::Kept(index) = self.blocks[id].state {
                self.slots[index as usize] = None;
                self.vacant.push(index);
            }
            self.open_hole(id);
        }
    }

    fn open_hole(&mut self, mut id: BlockId) {
        self.blocks[id].state = BlockState::Hole;
        if let Some(after) = self.blocks.hole(self.blocks[id].after) {
            self.holes.remove(&mut self.blocks, after);
            self.blocks.join(id, after);
        }
        if let Some(before) = self.blocks.hole(self.blocks[id].before) {
            self.holes.remove(&mut self.blocks, before);
            self.blocks.join(before, id);
            id = before;
        }
        self.holes.push(&mut self.blocks, id);
    }
}

/// Segments.
impl Allocator {
    /// Adds a segment of `len` bytes, rounded down to the alignment. `None` if that is zero, or after two billion
    /// segments.
    pub(crate) fn add_segment(&mut self, len: usize) -> Option<SegmentId> {
        let size = len >> self.unit_log2;
        if size == 0 || self.next_segment >= SEGMENT_NUMBERS {
            return None;
        }
        let vacant = self.segments.iter().position(|segment| segment.first.is_none());
        let socket_dir = vacant.unwrap_or(self.segments.len());
        self.blocks.reserve(blocks_for(self.max_slots, self.segments.len() + 1));
        let first = self.blocks.insert_segment(u32::try_from(socket_dir).ok()?, size)?;
        self.holes.push(&mut self.blocks, first);
        let id = SegmentId(self.next_segment);
        self.next_segment += 1;
        self.socket_dir(socket_dir, Segment { id, first: Some(first), size, used: 0, slots: 0 });
        self.stats.reserved += size << self.unit_log2;
        Some(id)
    }

    fn socket_dir(&mut self, socket_dir: usize, segment: Segment) {
        match self.segments.get_mut(socket_dir) {
            Some(vacant) => *vacant = segment,
            None => self.segments.push(segment),
        }
    }

    /// The segments without a slot in use, for `trim`.
    pub(crate) fn empty_segments(&self) -> impl Iterator<Item = SegmentId> {
        let empty = |segment: &&Segment| segment.first.is_some() && segment.slots == 0;
        self.segments.iter().filter(empty).map(|segment| segment.id)
    }

    /// Removes a segment without a slot in use. Returns `false` if a slot is in use, or if there is no such segment.
    pub(crate) fn remove_segment(&mut self, id: SegmentId) -> bool {
        let is_it = |segment: &&mut Segment| segment.id == id && segment.slots == 0;
        let segment = self.segments.iter_mut().find(is_it);
        let Some((first, size)) = segment.and_then(|it| Some((it.first.take()?, it.size))) else {
            return false;
        };
        self.join_kept();
        self.holes.remove(&mut self.blocks, first);
        self.blocks.remove(first);
        self.stats.reserved -= size << self.unit_log2;
        true
    }
}

/// Counting.
impl Allocator {
    fn units(&self, len: usize) -> usize {
        ((len.max(1) - 1) >> self.unit_log2) + 1
    }

    fn describe(&self, index: u32, id: BlockId) -> Slot {
        let block = &self.blocks[id];
        Slot {
            index,
            segment: self.segments[block.segment as usize].id,
            offset: block.offset << self.unit_log2,
            capacity: block.size << self.unit_log2,
        }
    }

    fn count_alloc(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let segment = &mut self.segments[block.segment as usize];
        segment.slots += 1;
        segment.used += block.size;
        self.stats.slots += 1;
        self.stats.in_use += block.size << self.unit_log2;
        self.stats.requested += block.requested;
        self.stats.peak = self.stats.peak.max(self.stats.in_use);
    }

    fn count_free(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let segment = &mut self.segments[block.segment as usize];
        segment.slots -= 1;
        segment.used -= block.size;
        self.stats.slots -= 1;
        self.stats.in_use -= block.size << self.unit_log2;
        self.stats.requested -= block.requested;
    }
}

/// The most blocks that can exist: one per slot number, and a hole after each and one per segment more,
/// because no two holes touch.
fn blocks_for(max_slots: u32, segments: usize) -> usize {
    2 * max_slots as usize + segments
}
