//! An untyped buffer: the block behind every handle.
#![allow(unsafe_code, reason = "holds a copy of the block's pointer")]

use std::ptr::NonNull;

use super::block::{ALIGN, Block, Fill};

/// A type with the alignment of blocks.
#[repr(align(64))]
struct Aligned;

const _: () = assert!(align_of::<Aligned>() == ALIGN);

/// A block that returns to its pool when dropped, or is freed if it has none.
#[derive(Debug)]
pub(crate) struct RawBuffer {
    /// The first byte, a copy of the block's pointer: element access needs it often.
    start: NonNull<u8>,
    /// Bytes that may have been written through this handle, from the first on.
    written: usize,
    /// None for a buffer of 0 bytes, which belongs to no pool.
    block: Option<Block>,
}

// SAFETY: the pointer is that of the block, which may be sent and shared itself.
unsafe impl Send for RawBuffer {}
// SAFETY: as above.
unsafe impl Sync for RawBuffer {}

impl RawBuffer {
    /// A buffer of 0 bytes.
    pub(crate) const EMPTY: RawBuffer =
        RawBuffer { start: NonNull::<Aligned>::dangling().cast(), written: 0, block: None };

    #[inline]
    pub(crate) fn new(block: Block) -> RawBuffer {
        RawBuffer { start: block.start(), written: 0, block: Some(block) }
    }

    /// The first byte: aligned, even if there is none.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes that may be used.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.block.as_ref().map_or(0, Block::capacity)
    }

    /// Records that the first `bytes` bytes may be written from now on.
    #[inline]
    pub(crate) fn mark_written(&mut self, bytes: usize) {
        self.written = self.written.max(bytes);
    }

    /// Records that bytes may become uninitialised.
    pub(crate) fn forget_init(&mut self) {
        self.block.iter_mut().for_each(Block::forget_init);
    }

    /// Fills the requested bytes as `fill` says. Returns how many zeros it need not write.
    pub(crate) fn prepare(&mut self, fill: Fill) -> usize {
        self.block.as_mut().map_or(0, |block| block.prepare(fill))
    }

    /// Takes the block out of its pool for good.
    pub(crate) fn detach(&mut self) {
        let Some(block) = &mut self.block else { return };
        let Some(to) = block.returns_to() else { return };
        block.set_returns_to(None);
        to.owner.detach(to.shard, block);
    }

    /// Locks its pages in memory, if it shares them with no other block. Returns whether it did.
    pub(crate) fn pin(&self) -> bool {
        self.block.as_ref().is_some_and(Block::pin)
    }

    /// Undoes [`pin`](RawBuffer::pin).
    pub(crate) fn unpin(&self) {
        self.block.iter().for_each(Block::unpin);
    }
}

impl Drop for RawBuffer {
    #[inline]
    fn drop(&mut self) {
        let Some(mut block) = self.block.take() else { return };
        block.mark_written(self.written);
        if let Some(to) = block.returns_to() {
            to.owner.release(to.shard, block);
        }
    }
}
