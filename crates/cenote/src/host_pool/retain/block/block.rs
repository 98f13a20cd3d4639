//! Raw blocks: memory with its size and the way to free it.
//!
//! Contract: while a [`Block`] lives, its `capacity` bytes at `start` are allocated, aligned to
//! [`ALIGN`], and referred to by nothing but the block. The bytes from `dirty` on are zero, as the
//! system supplied them. If `init` is set, every byte is initialised.
#![allow(unsafe_code, reason = "zeroes memory that no slice may be made of")]

use std::fmt;
use std::ptr::NonNull;

use super::memory::{self, ALIGN, Extras, Memory};
use super::size_class::{self, Fit};
use crate::error::Result;
use crate::host_pool::retain::amount::Amount;
use crate::types::dtype::Element;

/// What the bytes of an acquired block hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Anything, even never written.
    Uninit,
    /// Written, with any values.
    Stale,
    /// Zero.
    Zero,
}

/// Gets blocks back from buffers.
pub(crate) trait BlockOwner: fmt::Debug + Sync {
    /// Takes back a block that was in use.
    fn release(&'static self, shard: usize, block: Block);

    /// Removes a block that is in use from the pool.
    fn detach(&self, shard: usize, block: &Block);
}

/// A shard of the owner of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReturnsTo {
    pub(crate) owner: &'static dyn BlockOwner,
    pub(crate) shard: usize,
}

/// One piece of memory, freed when dropped. One pointer, because blocks are moved often.
#[derive(Debug)]
pub(crate) struct Block(Box<Body>);

/// Shares no cache line with another block: they may be used by different threads.
#[derive(Debug)]
#[repr(align(64))]
struct Body {
    start: NonNull<u8>,
    /// Bytes allocated: at least the capacity.
    size: usize,
    /// Bytes from here on are zero.
    dirty: usize,
    /// `size_class::size(class)` bytes are used: the capacity.
    class: usize,
    /// Bytes that the present user requested.
    requested: usize,
    /// None if the block is freed when its buffer is dropped.
    returns_to: Option<ReturnsTo>,
    init: bool,
    memory: Memory,
}

// SAFETY: a block is the sole owner of its memory, like a `Box<[u8]>`.
unsafe impl Send for Body {}
// SAFETY: a shared block allows reading its fields only; the bytes are reached through `start` by
// the handles, which follow the borrow rules themselves.
unsafe impl Sync for Body {}

impl Block {
    /// The size of a new block for this request.
    pub(crate) fn size_for(fit: Fit) -> usize {
        memory::round_up(size_class::size(fit.class))
    }

    /// A new block of zeros for this request, and the extras that were refused.
    pub(crate) fn new(fit: Fit, extras: Extras) -> Result<(Block, Extras)> {
        let size = Block::size_for(fit);
        let (start, memory) = Memory::zeroed(size, extras)?;
        let refused = memory.request(extras);
        Ok((Block::of(start, size, fit.class, 0, memory), refused))
    }

    /// Takes over the memory of a vector; none if it is too small.
    ///
    /// If possible the vector is first reallocated to the size of a new block for its capacity.
    pub(crate) fn from_vec<T: Element>(mut vec: Vec<T>) -> Option<Block> {
        vec.clear();
        fit_to_class(&mut vec);
        let size = vec.capacity() * size_of::<T>();
        let base = vec.as_mut_ptr().cast::<u8>();
        let lead = base.align_offset(ALIGN);
        let class = size.checked_sub(lead).and_then(size_class::floor)?;
        // SAFETY: `lead <= size`, so this is inside the vector's allocation.
        let start = unsafe { base.add(lead) };
        // SAFETY: a pointer into an allocation is not null.
        let start = unsafe { NonNull::new_unchecked(start) };
        // The vector is kept but not accessed: `start` is the only way to its bytes. Its elements need
        // no `drop`.
        let memory = Memory::vec(vec);
        Some(Block::of(start, size, class, size_class::size(class), memory))
    }

    fn of(start: NonNull<u8>, size: usize, class: usize, dirty: usize, memory: Memory) -> Block {
        let init = dirty == 0;
        let body = Body { start, size, dirty, class, requested: 0, returns_to: None, init, memory };
        Block(Box::new(body))
    }

    /// The first byte.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    /// Bytes that may be used.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        size_class::size(self.0.class)
    }

    /// Bytes that are allocated.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.0.size
    }

    /// Its size class.
    #[inline]
    pub(crate) fn class(&self) -> usize {
        self.0.class
    }

    /// The part of a cap that it uses while it is retained.
    #[inline]
    pub(crate) fn amount(&self) -> Amount {
        Amount { bytes: self.0.size, blocks: 1 }
    }

    /// Records how many bytes were requested.
    #[inline]
    pub(crate) fn set_requested(&mut self, bytes: usize) {
        self.0.requested = bytes;
    }

    /// Bytes that the present user requested.
    #[inline]
    pub(crate) fn requested(&self) -> usize {
        self.0.requested
    }

    /// The shard that gets it back.
    #[inline]
    pub(crate) fn returns_to(&self) -> Option<ReturnsTo> {
        self.0.returns_to
    }

    pub(crate) fn set_returns_to(&mut self, to: Option<ReturnsTo>) {
        self.0.returns_to = to;
    }

    /// Records that the first `bytes` bytes may have been written.
    #[inline]
    pub(crate) fn mark_written(&mut self, bytes: usize) {
        self.0.dirty = self.0.dirty.max(bytes);
    }

    /// Records that bytes may become uninitialised.
    #[inline]
    pub(crate) fn forget_init(&mut self) {
        self.0.init = false;
    }

    /// Fills the requested bytes as `fill` says. Returns how many zeros it need not write.
    pub(crate) fn prepare(&mut self, fill: Fill) -> usize {
        match fill {
            Fill::Uninit => 0,
            Fill::Stale if self.0.init => 0,
            Fill::Stale | Fill::Zero => self.zero(self.0.requested),
        }
    }

    fn zero(&mut self, bytes: usize) -> usize {
        debug_assert!(bytes <= self.capacity());
        let body = &mut *self.0;
        let written = body.dirty.min(bytes);
        // SAFETY: the block owns `capacity` bytes at `start`, `written` is at most that many since
        // `dirty` never is more, and `&mut self` means that there is no other access.
        unsafe { body.start.write_bytes(0, written) };
        if written == body.dirty {
            body.dirty = 0;
            body.init = true;
        }
        bytes - written
    }

    /// Whether freeing it returns it to the allocator of the process, which may keep it.
    pub(crate) fn is_on_heap(&self) -> bool {
        self.0.memory.is_on_heap()
    }

    /// Locks its pages in memory, if it shares them with no other block. Returns whether it did.
    pub(crate) fn pin(&self) -> bool {
        let lock = Extras { lock: true, ..Extras::default() };
        !self.0.memory.request(lock).lock
    }

    /// Undoes [`pin`](Block::pin).
    pub(crate) fn unpin(&self) {
        self.0.memory.unlock();
    }
}

/// Grows an empty vector until its aligned part holds a class that its capacity fits in.
fn fit_to_class<T: Element>(vec: &mut Vec<T>) {
    let size = vec.capacity() * size_of::<T>();
    let Some(fit) = Fit::new(size).filter(|_| size >= ALIGN) else { return };
    let wanted = size_class::size(fit.class);
    let usable = size.saturating_sub(vec.as_ptr().cast::<u8>().align_offset(ALIGN));
    if usable < wanted {
        // Wherever it lies, the part before the first multiple of `ALIGN` is smaller than `ALIGN`.
        let _ = vec.try_reserve_exact((wanted + ALIGN).div_ceil(size_of::<T>()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: usize) -> Block {
        Block::new(Fit::new(bytes).unwrap(), Extras::default()).unwrap().0
    }

    fn bytes(block: &Block) -> &[u8] {
        assert!(block.0.init);
        // SAFETY: `init` means that every byte was written.
        unsafe { std::slice::from_raw_parts(block.0.start.as_ptr(), block.capacity()) }
    }

    #[test]
    fn new_blocks_are_aligned_and_zero() {
        for size in [1, 64, 100, 4096, 128 << 10, 5 << 20] {
            let block = block(size);
            assert_eq!(block.0.start.as_ptr().align_offset(ALIGN), 0);
            assert!(block.capacity() >= size);
            assert!(bytes(&block).iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn only_written_bytes_are_zeroed() {
        let mut block = block(4096);
        block.mark_written(100);
        // SAFETY: the block has 4096 bytes.
        unsafe { block.0.start.write_bytes(7, 100) };
        assert_eq!(block.zero(4000), 3900);
        assert!(bytes(&block).iter().all(|&byte| byte == 0));
        assert_eq!(block.zero(4096), 4096);
    }

    #[test]
    fn zeroing_a_part_does_not_zero_the_rest() {
        let mut block = block(4096);
        // SAFETY: the block has 4096 bytes.
        unsafe { block.0.start.write_bytes(7, 1000) };
        block.mark_written(1000);
        assert_eq!(block.zero(10), 0);
        assert_eq!(bytes(&block)[10..1000], [7; 990]);
        assert_eq!(block.zero(2000), 1000);
        assert!(bytes(&block).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_vector_of_any_alignment_becomes_a_block() {
        for offset in 0..70 {
            let vec: Vec<u8> = Vec::with_capacity(1000 + offset);
            let capacity = vec.capacity();
            let block = Block::from_vec(vec).unwrap();
            assert_eq!(block.0.start.as_ptr().align_offset(ALIGN), 0);
            assert!(block.capacity() >= capacity);
            assert!(block.size() <= capacity + capacity / 8 + 2 * ALIGN);
            assert!(block.capacity() <= block.size());
        }
        assert!(Block::from_vec(vec![1.0_f64; 512]).is_some());
        assert!(Block::from_vec(vec![true; 3]).is_none());
        assert!(Block::from_vec(Vec::<i32>::new()).is_none());
    }
}
