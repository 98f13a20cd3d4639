//! A block on loan: what every handle is made of.
#![allow(unsafe_code, reason = "holds a copy of the block's pointer")]

use std::ptr::NonNull;

use super::block::{Block, Fill};
use super::memory::ALIGN;

/// As all blocks are.
#[repr(align(64))]
struct Aligned;

const _: () = assert!(align_of::<Aligned>() == ALIGN);

/// A block that returns itself to its pool when dropped, or frees itself if it has none.
#[derive(Debug)]
pub(super) struct RawBuffer {
    /// The first byte, at hand because elements are looked at often.
    start: NonNull<u8>,
    /// Bytes that may have been written through this handle, from the first on.
    soiled: usize,
    /// None for a buffer of no bytes, which belongs to no pool.
    block: Option<Block>,
}

// SAFETY: the pointer is that of the block, which may be sent and shared itself.
unsafe impl Send for RawBuffer {}
// SAFETY: as above.
unsafe impl Sync for RawBuffer {}

impl RawBuffer {
    /// A buffer of no bytes.
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

    /// Notes that the first `bytes` bytes may be written from now on.
    #[inline]
    pub(super) fn soil(&mut self, bytes: usize) {
        self.soiled = self.soiled.max(bytes);
    }

    /// Notes that bytes may become uninitialised.
    pub(super) fn forget_init(&mut self) {
        self.block.iter_mut().for_each(Block::forget_init);
    }

    /// Makes the bytes asked for what `fill` says; returns how many zeros it need not write.
    pub(super) fn prepare(&mut self, fill: Fill) -> usize {
        self.block.as_mut().map_or(0, |block| block.prepare(fill))
    }

    /// Takes the block out of its pool for good.
    pub(super) fn detach(&mut self) {
        let Some(block) = &mut self.block else { return };
        let Some(home) = block.leave_home() else { return };
        if let Some(store) = home.part(block) {
            store.forget(block.size());
        }
    }

    /// Locks its pages in memory, if they are its own; true if that worked.
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
            home.release(block);
        }
    }
}
