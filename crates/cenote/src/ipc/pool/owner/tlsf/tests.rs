//! The allocator against a naive model that keeps a list of live ranges and looks for gaps.

use crate::ipc::pool::owner::tlsf::allocator::*;
use crate::ipc::pool::owner::tlsf::bins::Class;
use crate::ipc::pool::owner::tlsf::blocks::BlockState;
use crate::memory::slot::{SegmentId, Slot};
use proptest::prelude::*;

const ALIGN: usize = 64;
const MAX: u32 = 24;

#[derive(Debug, Clone)]
enum Op {
    Alloc(usize),
    /// The n-th live slot, modulo how many there are.
    Free(usize),
    AddSegment(usize),
    /// The n-th segment, in use or not.
    RemoveSegment(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..160 * ALIGN).prop_map(Op::Alloc),
        // Many sizes of few classes, around the borders of the alignment.
        8 => (56..80usize, 0..3usize).prop_map(|(n, d)| Op::Alloc(n * ALIGN + d - 1)),
        10 => (0..64usize).prop_map(Op::Free),
        1 => (0..1000 * ALIGN).prop_map(Op::AddSegment),
        1 => (0..8usize).prop_map(Op::RemoveSegment),
    ]
}

/// The expected state, in a simple form.
struct Model {
    allocator: Allocator,
    segments: Vec<(SegmentId, usize)>,
    live: Vec<(Slot, usize)>,
    peak: usize,
}

impl Model {
    fn new() -> Self {
        let allocator = Allocator::new(MAX, ALIGN);
        Model { allocator, segments: Vec::new(), live: Vec::new(), peak: 0 }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Alloc(len) => self.alloc(len),
            Op::Free(n) if !self.live.is_empty() => self.free(n % self.live.len()),
            Op::AddSegment(len) => self.add_segment(len),
            Op::RemoveSegment(n) if !self.segments.is_empty() => {
                self.remove_segment(n % self.segments.len());
            }
            Op::Free(_) | Op::RemoveSegment(_) => {}
        }
    }

    fn alloc(&mut self, len: usize) {
        let (full, needed) = (self.live.len() == MAX as usize, len.max(1).next_multiple_of(ALIGN));
        let fits = self.gaps().any(|gap| gap >= needed);
        match self.allocator.alloc(len) {
            Ok(slot) => {
                assert!(slot.capacity >= needed && slot.capacity - needed <= needed / 8);
                self.live.push((slot, len));
            }
            Err(Full::Slots) => assert!(full),
            Err(Full::Bytes) => assert!(!full && !fits, "a gap of {needed} bytes was not used"),
        }
    }

    fn free(&mut self, n: usize) {
        let (slot, _) = self.live.swap_remove(n);
        assert_eq!(self.allocator.slot(slot.index), Some(slot));
        self.allocator.free(slot.index);
        assert_eq!(self.allocator.slot(slot.index), None);
    }

    fn add_segment(&mut self, len: usize) {
        let added = self.allocator.add_segment(len);
        assert_eq!(added.is_some(), len >= ALIGN);
        self.segments.extend(added.map(|id| (id, len / ALIGN * ALIGN)));
    }

    fn remove_segment(&mut self, n: usize) {
        let id = self.segments[n].0;
        let empty = self.ranges(id).is_empty();
        assert_eq!(self.allocator.empty_segments().any(|it| it == id), empty);
        assert_eq!(self.allocator.remove_segment(id), empty);
        if empty {
            self.segments.swap_remove(n);
            assert!(!self.allocator.remove_segment(id));
        }
    }

    /// The ranges in use of a segment, in order.
    fn ranges(&self, id: SegmentId) -> Vec<(usize, usize)> {
        let live = self.live.iter().filter(|(slot, _)| slot.segment == id);
        let mut ranges: Vec<_> =
            live.map(|(slot, _)| (slot.offset, slot.offset + slot.capacity)).collect();
        ranges.sort_unstable();
        ranges
    }

    fn gaps(&self) -> impl Iterator<Item = usize> {
        self.segments.iter().flat_map(|&(id, len)| {
            let mut end = 0;
            let mut ranges = self.ranges(id);
            ranges.push((len, len));
            ranges.into_iter().map(move |(start, next)| start - std::mem::replace(&mut end, next))
        })
    }

    fn check(&mut self) {
        for &(id, len) in &self.segments {
            let ranges = self.ranges(id);
            assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "overlap: {ranges:?}");
            assert!(ranges.last().is_none_or(|last| last.1 <= len), "beyond {len}: {ranges:?}");
            assert!(ranges.iter().all(|range| range.0 % ALIGN == 0));
        }
        let mut indices: Vec<_> = self.live.iter().map(|(slot, _)| slot.index).collect();
        indices.sort_unstable();
        indices.dedup();
        assert_eq!(indices.len(), self.live.len());
        assert!(indices.iter().all(|&index| index < MAX));
        self.check_stats();
    }

    fn check_stats(&mut self) {
        let in_use: usize = self.live.iter().map(|(slot, _)| slot.capacity).sum();
        self.peak = self.peak.max(in_use);
        let expected = Stats {
            reserved: self.segments.iter().map(|(_, len)| len).sum(),
            in_use,
            requested: self.live.iter().map(|(_, len)| len).sum(),
            peak: self.peak,
            slots: u32::try_from(self.live.len()).unwrap(),
        };
        assert_eq!(self.allocator.stats(), expected);
        assert_eq!(self.allocator.stats().waste(), expected.in_use - expected.requested);
    }

    /// With nothing in use, every segment is one hole again.
    fn check_whole(mut self) {
        while !self.live.is_empty() {
            self.free(0);
        }
        self.allocator.join_kept();
        for segment in self.allocator.segments.iter().filter(|segment| segment.first.is_some()) {
            let block = &self.allocator.blocks[segment.first.unwrap()];
            assert_eq!((block.state, block.size), (BlockState::Hole, segment.size));
            assert_eq!((block.offset, block.before, block.after), (0, None, None));
        }
        assert_eq!(self.allocator.vacant.len(), MAX as usize);
    }

    fn capacities(&self) -> (usize, (usize, usize)) {
        (self.allocator.vacant.capacity(), self.allocator.blocks.capacity())
    }
}

proptest! {
    #[test]
    fn the_allocator_agrees_with_the_naive_model(ops in prop::collection::vec(op(), 0..200)) {
        let mut model = Model::new();
        model.add_segment(1000 * ALIGN);
        for op in &ops {
            let before = model.capacities();
            model.apply(op);
            model.check();
            if !matches!(op, Op::AddSegment(_)) {
                prop_assert_eq!(before, model.capacities(), "memory was allocated");
            }
        }
        model.check_whole();
    }
}

fn allocator(max_slots: u32, segment: usize) -> Allocator {
    let mut allocator = Allocator::new(max_slots, ALIGN);
    allocator.add_segment(segment).unwrap();
    allocator
}

#[test]
fn a_segment_of_n_frames_holds_n_frames() {
    for frame in [1920 * 1080 * 3, 640 * 480, 9_000_000, ALIGN] {
        let frame = usize::next_multiple_of(frame, ALIGN);
        let mut allocator = allocator(32, 7 * frame);
        for _ in 0..7 {
            assert_eq!(allocator.alloc(frame).unwrap().capacity, frame);
        }
        assert_eq!(allocator.alloc(1), Err(Full::Bytes));
    }
}

#[test]
fn one_size_in_a_loop_gets_the_same_slot() {
    let mut allocator = allocator(8, 1 << 24);
    let first = allocator.alloc(6_220_800).unwrap();
    for _ in 0..100 {
        allocator.free(first.index);
        assert_eq!(allocator.alloc(6_220_800), Ok(first));
    }
    assert_eq!(allocator.stats().peak, first.capacity);
}

#[test]
fn freed_small_slots_join_for_a_large_one() {
    let mut allocator = allocator(64, 64 * ALIGN);
    let slots: Vec<_> = (0..64).map(|_| allocator.alloc(ALIGN).unwrap()).collect();
    assert_eq!(allocator.alloc(ALIGN), Err(Full::Slots));
    slots.iter().for_each(|slot| allocator.free(slot.index));
    assert_eq!(allocator.alloc(64 * ALIGN).unwrap().capacity, 64 * ALIGN);
}

#[test]
fn a_hole_behind_a_smaller_one_of_its_class_is_found() {
    let mut allocator = allocator(8, (67 + 1 + 65 + 20) * ALIGN);
    let [large, _, small, _] = [67, 1, 65, 20].map(|n| allocator.alloc(n * ALIGN).unwrap());
    assert_eq!(Class::of(67), Class::of(65));
    for slot in [small, large] {
        allocator.free(slot.index);
    }
    allocator.join_kept();
    assert_eq!(allocator.find_hole(67), None, "the smaller one is in front");
    assert_eq!(allocator.alloc(67 * ALIGN).unwrap().offset, large.offset);
}

#[test]
fn kept_blocks_give_up_their_slot_numbers_when_they_are_needed() {
    let mut allocator = allocator(2, 64 * ALIGN);
    let slots = [1, 2].map(|n| allocator.alloc(n * ALIGN).unwrap());
    slots.iter().for_each(|slot| allocator.free(slot.index));
    assert!(allocator.alloc(20 * ALIGN).is_ok());
    assert!(allocator.alloc(30 * ALIGN).is_ok());
    assert_eq!(allocator.alloc(1), Err(Full::Slots));
}

#[test]
fn absurd_requests_are_refused_not_fatal() {
    let mut allocator = allocator(2, 4096);
    assert_eq!(allocator.alloc(usize::MAX), Err(Full::Bytes));
    assert_eq!(allocator.alloc(4097), Err(Full::Bytes));
    assert_eq!(allocator.alloc(0).unwrap().capacity, ALIGN);
    assert_eq!(allocator.slot(u32::MAX), None);
    assert_eq!(allocator.add_segment(ALIGN - 1), None);
    assert_eq!(Allocator::new(0, 0).alloc(1), Err(Full::Slots));
    assert!(!allocator.remove_segment(SegmentId(7)));
}

#[test]
fn alignments_are_rounded_up_to_a_power_of_two() {
    for (given, unit) in [(0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128), (4096, 4096)] {
        let mut allocator = Allocator::new(1, given);
        allocator.add_segment(1 << 20);
        assert_eq!(allocator.alloc(1).unwrap().capacity, unit, "{given}");
    }
}

#[test]
fn a_removed_segment_leaves_its_place_but_not_its_name() {
    let mut allocator = allocator(4, 4096);
    let old = allocator.empty_segments().next().unwrap();
    let slot = allocator.alloc(100).unwrap();
    assert_eq!(allocator.empty_segments().count(), 0);
    assert!(!allocator.remove_segment(old));
    allocator.free(slot.index);
    assert!(allocator.remove_segment(old));
    assert_eq!(allocator.alloc(100), Err(Full::Bytes));
    let new = allocator.add_segment(4096).unwrap();
    assert_ne!(new, old);
    assert_eq!(allocator.segments.len(), 1);
    assert_eq!(allocator.alloc(100).unwrap().segment, new);
}

#[test]
fn whole_segments_are_never_shared_and_never_much_too_large() {
    let mut allocator = Allocator::whole(4, 4096);
    let large = allocator.add_segment(8 * 4096).unwrap();
    assert_eq!(allocator.alloc(100), Err(Full::Bytes), "it is much too large");
    let small = allocator.add_segment(4096).unwrap();
    let slot = allocator.alloc(100).unwrap();
    assert_eq!((slot.segment, slot.offset, slot.capacity), (small, 0, 4096));
    assert_eq!(allocator.alloc(1), Err(Full::Bytes));
    assert_eq!(allocator.free_for(1), 0, "what is too large is of no use");
    let other = allocator.alloc(7 * 4096 + 1).unwrap();
    assert_eq!((other.segment, other.offset, other.capacity), (large, 0, 8 * 4096));
    // Of the freed segments, too, only one that suits is used.
    allocator.free(other.index);
    assert_eq!(allocator.alloc(2 * 4096), Err(Full::Bytes));
    assert_eq!(allocator.alloc(8 * 4096).unwrap().segment, large);
    allocator.free(slot.index);
    assert_eq!(allocator.alloc(4096).unwrap().segment, small);
    assert_eq!(allocator.stats().in_use, 9 * 4096);
}
