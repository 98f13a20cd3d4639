//! Free blocks by size: the two-level segregated lists of TLSF (Masmano, Ripoll, Crespo and Real,
//! "TLSF: a New Dynamic Memory Allocator for Real-Time Systems", ECRTS 2004).
//!
//! Sizes below 8 have a class each; above, each power of two has 8 classes, so that two sizes of one
//! class differ by less than an eighth of the smaller. A bitmap finds the next class that has a block
//! in two steps, whatever the number of blocks.

use crate::ipc::pool::owner::tlsf::blocks::{BlockId, Blocks};

/// Classes per power of two.
const STEPS: usize = 8;
const STEPS_LOG2: usize = STEPS.trailing_zeros() as usize;
/// Rows of `STEPS` classes that cover every `usize`: the small sizes, then one per power of two.
const ROWS: usize = usize::BITS as usize - STEPS_LOG2 + 1;

/// A range of sizes, ordered as the sizes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(usize);

impl Class {
    /// The class that `size` falls in.
    pub(crate) fn of(size: usize) -> Self {
        if size < STEPS {
            return Class(size);
        }
        let shift = size.ilog2() as usize - STEPS_LOG2;
        Class((shift << STEPS_LOG2) + (size >> shift))
    }

    /// The first class of which every block has `size` or more. May lie past the last one.
    pub(crate) fn from(size: usize) -> Self {
        let class = Class::of(size);
        if class.smallest() == size { class } else { Class(class.0 + 1) }
    }

    fn smallest(self) -> usize {
        if self.row() == 0 {
            return self.0;
        }
        (STEPS + self.step()) << (self.row() - 1)
    }

    fn row(self) -> usize {
        self.0 / STEPS
    }

    fn step(self) -> usize {
        self.0 % STEPS
    }
}

/// A last-in-first-out list of blocks per class.
#[derive(Debug)]
pub(crate) struct Bins {
    heads: Box<[Option<BlockId>]>,
    /// Bit `r`: some class of row `r` has a block.
    rows: u64,
    /// Bit `s` of row `r`: class `r * STEPS + s` has a block.
    steps: [u8; ROWS],
}

impl Bins {
    pub(crate) fn new() -> Self {
        Bins { heads: vec![None; ROWS * STEPS].into(), rows: 0, steps: [0; ROWS] }
    }

    /// The block that was added to this class last.
    pub(crate) fn head(&self, class: Class) -> Option<BlockId> {
        self.heads[class.0]
    }

    /// A block of the smallest class from this one on that has a block.
    pub(crate) fn first_from(&self, class: Class) -> Option<BlockId> {
        let (row, step) = (class.row(), class.step());
        let steps = self.steps.get(row)? & (u8::MAX << step);
        if steps != 0 {
            return self.lowest(row, steps);
        }
        let rows = self.rows & (u64::MAX << row << 1);
        let row = rows.trailing_zeros() as usize;
        self.lowest(row, *self.steps.get(row)?)
    }

    /// A block of the largest class that has a block.
    pub(crate) fn last(&self) -> Option<BlockId> {
        let row = self.rows.checked_ilog2()? as usize;
        let step = self.steps.get(row)?.checked_ilog2()? as usize;
        self.head(Class(row * STEPS + step))
    }

    fn lowest(&self, row: usize, steps: u8) -> Option<BlockId> {
        self.head(Class(row * STEPS + steps.trailing_zeros() as usize))
    }

    /// Adds a block that is in no list.
    pub(crate) fn push(&mut self, blocks: &mut Blocks, block: BlockId) {
        let class = Class::of(blocks[block].size);
        let head = self.heads[class.0].replace(block);
        if let Some(head) = head {
            blocks[head].newer = Some(block);
        }
        blocks[block].older = head;
        blocks[block].newer = None;
        self.mark(class);
    }

    /// Removes a block that is in one of these lists.
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, block: BlockId) {
        let (class, newer, older) = {
            let block = &blocks[block];
            (Class::of(block.size), block.newer, block.older)
        };
        if let Some(older) = older {
            blocks[older].newer = newer;
        }
        match newer {
            Some(newer) => blocks[newer].older = older,
            None => self.heads[class.0] = older,
        }
        if self.heads[class.0].is_none() {
            self.unmark(class);
        }
    }

    fn mark(&mut self, class: Class) {
        self.steps[class.row()] |= 1 << class.step();
        self.rows |= 1 << class.row();
    }

    fn unmark(&mut self, class: Class) {
        self.steps[class.row()] &= !(1 << class.step());
        if self.steps[class.row()] == 0 {
            self.rows &= !(1 << class.row());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_follow_each_other_without_a_gap() {
        let mut last = Class::of(1);
        for size in 2..100_000 {
            let class = Class::of(size);
            assert!(class == last || class == Class(last.0 + 1), "{size}");
            last = class;
        }
        assert_eq!(Class::of(usize::MAX).0, ROWS * STEPS - 1);
    }

    proptest! {
        #[test]
        fn two_sizes_of_a_class_differ_by_less_than_an_eighth(size in 1..=usize::MAX) {
            let smallest = Class::of(size).smallest();
            prop_assert_eq!(Class::of(smallest), Class::of(size));
            prop_assert!(smallest <= size && size - smallest <= smallest / 8);
        }

        #[test]
        fn every_block_from_a_class_on_is_large_enough(size in 1..usize::MAX / 2) {
            let from = Class::from(size);
            prop_assert!(from.smallest() >= size);
            prop_assert!(Class::of(size) == from || Class(Class::of(size).0 + 1) == from);
        }
    }
}
