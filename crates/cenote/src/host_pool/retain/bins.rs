//! The blocks that one shard retains, in one bin for each size class.
//!
//! A bin is a doubly linked list through `slots`, newest first. Taking and putting take constant
//! time, and touch no memory that another shard uses: a slot fills a cache line.

use super::amount::Amount;
use super::block::{Block, CLASS_COUNT, Fit};

/// No slot.
const NONE: u32 = u32::MAX;

const WORDS: usize = CLASS_COUNT.div_ceil(64);

/// Room for one block. Unused slots form a list through `older`.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    block: Option<Block>,
    /// The tick of the shard when the block was put here.
    stamp: u64,
    newer: u32,
    older: u32,
}

#[derive(Debug, Clone, Copy)]
struct Bin {
    newest: u32,
    oldest: u32,
}

#[derive(Debug)]
pub(super) struct Bins {
    /// One for each class; none while there are no slots.
    bins: Vec<Bin>,
    /// Bit `c` is set if bin `c` is not empty.
    occupied: [u64; WORDS],
    slots: Vec<Slot>,
    /// The first unused slot.
    unused: u32,
    held: Amount,
}

impl Default for Bins {
    fn default() -> Bins {
        Bins {
            bins: Vec::new(),
            occupied: [0; WORDS],
            slots: Vec::new(),
            unused: NONE,
            held: Amount::default(),
        }
    }
}

impl Bins {
    /// The sum of all blocks in the bins.
    #[inline]
    pub(super) fn held(&self) -> Amount {
        self.held
    }

    /// Puts a block in. Stamps never decrease.
    #[inline]
    pub(super) fn put(&mut self, block: Block, stamp: u64) {
        let class = block.class();
        self.held.add(block.amount());
        let older = self.bins.get(class).map_or(NONE, |bin| bin.newest);
        let slot = Slot { block: Some(block), stamp, newer: NONE, older };
        let index = self.fill_slot(slot);
        match older {
            NONE => self.bins[class].oldest = index,
            older => self.slots[older as usize].newer = index,
        }
        self.bins[class].newest = index;
        self.occupied[class / 64] |= 1 << (class % 64);
    }

    /// Takes the smallest block that the request accepts; of several, the most recently used.
    #[inline]
    pub(super) fn take(&mut self, fit: Fit) -> Option<Block> {
        let class = self.first_occupied(fit.class)?;
        let newest = self.bins[class].newest;
        let block = self.slots[newest as usize].block.as_ref()?;
        // The memory of a vector that was given to the pool may be larger than its class.
        if fit.accepts(block.size()) { self.remove(newest) } else { None }
    }

    /// The smallest stamp.
    pub(super) fn oldest(&self) -> Option<u64> {
        Some(self.slots[self.oldest_slot()? as usize].stamp)
    }

    /// Takes the block with the smallest stamp. With the last block the slots are freed, too.
    pub(super) fn take_oldest(&mut self) -> Option<Block> {
        let index = self.oldest_slot()?;
        let block = self.remove(index);
        if self.held.blocks == 0 {
            *self = Bins::default();
        }
        block
    }

    fn oldest_slot(&self) -> Option<u32> {
        let occupied =
            std::iter::successors(self.first_occupied(0), |&class| self.first_occupied(class + 1));
        occupied
            .map(|class| self.bins[class].oldest)
            .min_by_key(|&index| self.slots[index as usize].stamp)
    }

    /// The first bin from `class` on that is not empty.
    #[inline]
    fn first_occupied(&self, class: usize) -> Option<usize> {
        let first = class / 64;
        let mut mask = !0 << (class % 64);
        for (word, bits) in self.occupied.iter().enumerate().skip(first) {
            let bits = bits & mask;
            if bits != 0 {
                return Some(64 * word + bits.trailing_zeros() as usize);
            }
            mask = !0;
        }
        None
    }

    #[inline]
    fn fill_slot(&mut self, slot: Slot) -> u32 {
        match self.unused {
            NONE => self.grow(slot),
            index => {
                let unused = &mut self.slots[index as usize];
                self.unused = unused.older;
                *unused = slot;
                index
            }
        }
    }

    #[cold]
    fn grow(&mut self, slot: Slot) -> u32 {
        self.bins.resize(CLASS_COUNT, Bin { newest: NONE, oldest: NONE });
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 blocks");
        self.slots.push(slot);
        index
    }

    /// Unlinks a slot and returns its block.
    #[inline]
    fn remove(&mut self, index: u32) -> Option<Block> {
        let slot = &mut self.slots[index as usize];
        let block = slot.block.take()?;
        let (newer, older) = (slot.newer, slot.older);
        slot.older = self.unused;
        self.unused = index;
        self.unlink(block.class(), newer, older);
        self.held.subtract(block.amount());
        Some(block)
    }

    #[inline]
    fn unlink(&mut self, class: usize, newer: u32, older: u32) {
        match newer {
            NONE => self.bins[class].newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.bins[class].oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        if self.bins[class].newest == NONE {
            self.occupied[class / 64] &= !(1 << (class % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::Extras;
    use super::*;

    fn fit(bytes: usize) -> Fit {
        Fit::new(bytes).unwrap()
    }

    fn bins_with(sizes: &[usize]) -> Bins {
        let mut bins = Bins::default();
        for (stamp, &size) in sizes.iter().enumerate() {
            bins.put(Block::new(fit(size), Extras::default()).unwrap().0, stamp as u64);
        }
        bins
    }

    #[test]
    fn the_smallest_block_that_fits_is_taken() {
        let mut bins = bins_with(&[4096, 1024, 2048]);
        assert_eq!(bins.take(fit(1000)).unwrap().capacity(), 1024);
        assert_eq!(bins.take(fit(1000)).unwrap().capacity(), 2048);
        assert_eq!(bins.take(fit(1000)).unwrap().capacity(), 4096);
        assert!(bins.take(fit(1000)).is_none());
        assert_eq!(bins.held(), Amount::default());
    }

    #[test]
    fn blocks_leave_oldest_first() {
        let mut bins = bins_with(&[64, 4096, 64, 128]);
        let left: Vec<usize> =
            std::iter::from_fn(|| bins.take_oldest()).map(|block| block.capacity()).collect();
        assert_eq!(left, [64, 4096, 64, 128]);
        assert_eq!(bins.oldest(), None);
        assert_eq!(bins.slots.capacity(), 0);
        bins.put(Block::new(fit(64), Extras::default()).unwrap().0, 9);
        assert_eq!(bins.take(fit(64)).unwrap().capacity(), 64);
    }

    #[test]
    fn slots_are_used_again() {
        let mut bins = bins_with(&[64; 10]);
        for stamp in 10..1000 {
            let block = bins.take_oldest().unwrap();
            bins.put(block, stamp);
        }
        assert!(bins.slots.len() <= 10);
        assert_eq!(bins.held(), Amount { bytes: 640, blocks: 10 });
    }
}
