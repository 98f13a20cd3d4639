//! An untyped buffer: the block behind every handle.
#![allow(unsafe_code, reason = "holds a copy of the block's pointer")]

use std::ptr::NonNull;

use super::retain::{ALIGN, Block, Fill};

/// A type with the alignment of blocks.
#[repr(align(64))]
struct Aligned;

const _: () = assert!(align_of::<Aligned>() == ALIGN);

/// A block that returns to its pool when dropped, or is freed if it has none.
#[derive(Debug)]
pub(super) struct RawBuffer {
    /// The first byte, a copy of the block's pointer: element access needs it often.
    start: NonNull<u8>,
    /// Bytes that may have been written through this handle, from the first on.
    soiled: usize,
    /// None for a buffer of 0 bytes, which belongs to no pool.
    block: Option<Block>,
}

// SAFETY: the pointer is that of the block, which may be sent and shared itself.
unsafe impl Send for RawBuffer {}
// SAFETY: as above.
unsafe impl Sync for RawBuffer {}

impl RawBuffer {
    /// A buffer of 0 bytes.
    pub(super) const EMPTY: RawBuffer =
        RawBuffer { start: NonNull::<Aligned>::dangling().cast(), soiled: 0, block: None };

    #[inline]
    pub(super) fn new(block: Block) -> RawBuffer {
        RawBuffer { start: block.start(), soiled: 0, block: Some(block) }
    }

    /// The first byte: aligned, even if there is none.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes that may be used.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.block.as_ref().map_or(0, Block::capacity)
    }

    /// Records that the first `bytes` bytes may be written from now on.
    #[inline]
    pub(super) fn soil(&mut self, bytes: usize) {
        self.soiled = self.soiled.max(bytes);
    }

    /// Records that bytes may become uninitialised.
    pub(super) fn forget_init(&mut self) {
        self.block.iter_mut().for_each(Block::forget_init);
    }

    /// Fills the requested bytes as `fill` says. Returns how many zeros it need not write.
    pub(super) fn prepare(&mut self, fill: Fill) -> usize {
        self.block.as_mut().map_or(0, |block| block.prepare(fill))
    }

    /// Takes the block out of its pool for good.
    pub(super) fn detach(&mut self) {
        let Some(block) = &mut self.block else { return };
        let Some(home) = block.home() else { return };
        block.set_home(None);
        home.cache.detach(home.shard, block);
    }

    /// The cache that gets the block back.
    #[cfg(all(test, loom))]
    pub(super) fn cache(&self) -> Option<&'static super::retain::FreeCache> {
        self.block.as_ref()?.home().map(|home| home.cache)
    }

    /// Locks its pages in memory, if it shares them with no other block. Returns whether it did.
    pub(super) fn pin(&self) -> bool {
        self.block.as_ref().is_some_and(Block::pin)
    }

    /// Undoes [`pin`](RawBuffer::pin).
    pub(super) fn unpin(&self) {
        self.block.iter().for_each(Block::unpin);
    }
}

impl Drop for RawBuffer {
    #[inline]
    fn drop(&mut self) {
        let Some(mut block) = self.block.take() else { return };
        block.soil(self.soiled);
        if let Some(home) = block.home() {
            home.cache.release(home.shard, block);
        }
    }
}
