//! The blocks into which the segments are cut. Each has links to its neighbours.
//!
//! They are in a private table, not in headers in the memory itself, because other processes map that memory. The
//! table recycles its entries and is made large enough beforehand, so cutting and joining never allocates.

use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// The place of a block in the table, plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockId(NonZeroU32);

/// The state of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// Free, without a slot number, and not beside another hole.
    Hole,
    /// Free, but whole and with a slot number, for the next request of its size.
    Kept(u32),
    /// In use.
    Used(u32),
}

/// A range of a segment. Sizes and offsets count units of the allocator's alignment.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) state: BlockState,
    pub(crate) offset: usize,
    pub(crate) size: usize,
    /// The requested bytes, while it is in use.
    pub(crate) requested: usize,
    /// Index of its segment.
    pub(crate) segment: u32,
    /// The block that ends where this one starts, and the one that starts where it ends.
    pub(crate) before: Option<BlockId>,
    pub(crate) after: Option<BlockId>,
    /// Its neighbours in the list of a bin, while it is free.
    pub(crate) newer: Option<BlockId>,
    pub(crate) older: Option<BlockId>,
}

/// All blocks of all segments.
#[derive(Debug)]
pub(crate) struct Blocks {
    table: Vec<Block>,
    vacant: Vec<BlockId>,
}

impl Blocks {
    pub(crate) fn with_capacity(blocks: usize) -> Self {
        Blocks { table: Vec::with_capacity(blocks), vacant: Vec::with_capacity(blocks) }
    }

    /// Reserves room for `blocks` in all.
    pub(crate) fn reserve(&mut self, blocks: usize) {
        self.table.reserve_exact(blocks.saturating_sub(self.table.len()));
        self.vacant.reserve_exact(blocks.saturating_sub(self.vacant.len()));
    }

    /// Makes a hole of a whole segment. `None` if the table has run out of numbers.
    pub(crate) fn insert_segment(&mut self, segment: u32, size: usize) -> Option<BlockId> {
        self.insert(Block {
            state: BlockState::Hole,
            offset: 0,
            size,
            requested: 0,
            segment,
            before: None,
            after: None,
            newer: None,
            older: None,
        })
    }

    /// Removes a block that has no neighbours.
    pub(crate) fn remove(&mut self, block: BlockId) {
        self.vacant.push(block);
    }

    /// Cuts a hole in two and returns the back part. `None` if the table has run out of numbers.
    pub(crate) fn split(&mut self, front: BlockId, size: usize) -> Option<BlockId> {
        let mut back = self[front].clone();
        back.offset += size;
        back.size -= size;
        back.before = Some(front);
        let after = back.after;
        let back = self.insert(back)?;
        self[front].size = size;
        self[front].after = Some(back);
        if let Some(after) = after {
            self[after].before = Some(back);
        }
        Some(back)
    }

    /// Joins a block to the one before it.
    pub(crate) fn join(&mut self, front: BlockId, back: BlockId) {
        let (size, after) = (self[back].size, self[back].after);
        self[front].size += size;
        self[front].after = after;
        if let Some(after) = after {
            self[after].before = Some(front);
        }
        self.remove(back);
    }

    /// The block, if it is a hole.
    pub(crate) fn hole(&self, block: Option<BlockId>) -> Option<BlockId> {
        block.filter(|&block| self[block].state == BlockState::Hole)
    }

    fn insert(&mut self, block: Block) -> Option<BlockId> {
        if let Some(id) = self.vacant.pop() {
            self[id] = block;
            return Some(id);
        }
        let id = u32::try_from(self.table.len() + 1).ok().and_then(NonZeroU32::new)?;
        self.table.push(block);
        Some(BlockId(id))
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> (usize, usize) {
        (self.table.capacity(), self.vacant.capacity())
    }
}

impl Index<BlockId> for Blocks {
    type Output = Block;

    fn index(&self, BlockId(id): BlockId) -> &Block {
        &self.table[id.get() as usize - 1]
    }
}

impl IndexMut<BlockId> for Blocks {
    fn index_mut(&mut self, BlockId(id): BlockId) -> &mut Block {
        &mut self.table[id.get() as usize - 1]
    }
}
