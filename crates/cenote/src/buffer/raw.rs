//! A block on loan: what every handle is made of.

use super::block::{Block, Fill};
use super::shard::Shard;

/// A block that returns itself to its pool when dropped, or frees itself if it has none.
#[derive(Debug)]
pub(super) struct RawBuffer {
    pub(super) block: Block,
    /// Bytes that were asked for.
    bytes: usize,
    home: Option<&'static Shard>,
}

impl RawBuffer {
    /// A buffer of no bytes. It belongs to no pool.
    pub(super) const EMPTY: RawBuffer = RawBuffer { block: Block::EMPTY, bytes: 0, home: None };

    #[inline]
    pub(super) fn new(block: Block, bytes: usize, home: &'static Shard) -> RawBuffer {
        RawBuffer { block, bytes, home: Some(home) }
    }

    pub(super) fn prepare(&mut self, fill: Fill) -> usize {
        self.block.prepare(self.bytes, fill)
    }

    /// Takes the block out of its pool for good.
    pub(super) fn detach(&mut self) {
        if let Some(store) =
            self.home.take().and_then(|home| home.part(self.block.size(), self.bytes))
        {
            store.forget(self.block.size());
        }
    }
}

impl Drop for RawBuffer {
    #[inline]
    fn drop(&mut self) {
        if let Some(home) = self.home {
            home.release(std::mem::replace(&mut self.block, Block::EMPTY), self.bytes);
        }
    }
}
