//! Raw blocks: memory with its size and the way to free it.
//!
//! Contract: while a [`Block`] lives, its `capacity` bytes at `start` are allocated, aligned to
//! [`ALIGN`], and referred to by nothing but the block. The bytes from `dirty` on are zero, as the
//! system supplied them. If `init` is set, every byte is initialised.
#![allow(unsafe_code, reason = "zeroes memory that no slice may be made of")]

use std::ptr::NonNull;

use super::amount::Amount;
use super::free_cache::FreeCache;
use super::memory::{self, ALIGN, Extras, Memory};
use super::size_class::{self, Fit};
use crate::error::Result;
use crate::types::dtype::Element;

/// What the bytes of an acquired block hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host_pool) enum Fill {
    /// Anything, even never written.
    Uninit,
    /// Written, with any values.
    Stale,
    /// Zero.
    Zero,
}

/// A shard of a free cache.
#[derive(Debug, Clone, Copy)]
pub(in crate::host_pool) struct Home {
    pub(in crate::host_pool) cache: &'static FreeCache,
    pub(in crate::host_pool) shard: usize,
}

/// One piece of memory, freed when dropped. One pointer, because blocks are moved often.
#[derive(Debug)]
pub(in crate::host_pool) struct Block(Box<Body>);

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
    /// The shard that gets the block back; none if it is freed then.
    home: Option<Home>,
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
    pub(in crate::host_pool) fn size_for(fit: Fit) -> usize {
        memory::round_up(size_class::size(fit.class))
    }

    /// A new block of zeros for this request, and the extras that were refused.
    pub(in crate::host_pool) fn new(fit: Fit, extras: Extras) -> Result<(Block, Extras)> {
        let size = Block::size_for(fit);
        let (start, memory) = Memory::zeroed(size, extras)?;
        let refused = memory.request(extras);
        Ok((Block::of(start, size, fit.class, 0, memory), refused))
    }

    /// Takes over the memory of a vector; none if it is too small.
    ///
    /// If possible the vector is first reallocated to the size of a new block for its capacity.
    pub(in crate::host_pool) fn from_vec<T: Element>(mut vec: Vec<T>) -> Option<Block> {
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
        let body = Body { start, size, dirty, class, requested: 0, home: None, init, memory };
        Block(Box::new(body))
    }

    /// The first byte.
    #[inline]
    pub(in crate::host_pool) fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    /// Bytes that may be used.
    #[inline]
    pub(in crate::host_pool) fn capacity(&self) -> usize {
        size_class::size(self.0.class)
    }

    /// Bytes that are allocated.
    #[inline]
    pub(in crate::host_pool) fn size(&self) -> usize {
        self.0.size
    }

    /// Its size class.
    #[inline]
    pub(in crate::host_pool) fn class(&self) -> usize {
        self.0.class
    }

    /// The part of a cap that it uses while it is retained.
    #[inline]
    pub(in crate::host_pool) fn amount(&self) -> Amount {
        Amount { bytes: self.0.size, blocks: 1 }
    }

    /// Records how many bytes were requested.
    #[inline]
    pub(in crate::host_pool) fn set_requested(&mut self, bytes: usize) {
        self.0.requested = bytes;
    }

    /// Bytes that the present user requested.
    #[inline]
    pub(in crate::host_pool) fn requested(&self) -> usize {
        self.0.requested
    }

    /// The shard that gets it back.
    #[inline]
    pub(in crate::host_pool) fn home(&self) -> Option<Home> {
        self.0.home
    }

    pub(in crate::host_pool) fn set_home(&mut self, home: Option<Home>) {
        self.0.home = home;
    }

    /// Records that the first `bytes` bytes may have been written.
    #[inline]
    pub(in crate::host_pool) fn soil(&mut self, bytes: usize) {
        self.0.dirty = self.0.dirty.max(bytes);
    }

    /// Records that bytes may become uninitialised.
    #[inline]
    pub(in crate::host_pool) fn forget_init(&mut self) {
        self.0.init = false;
    }

    /// Fills the requested bytes as `fill` says. Returns how many zeros it need not write.
    pub(in crate::host_pool) fn prepare(&mut self, fill: Fill) -> usize {
        match fill {
            Fill::Uninit => 0,
            Fill::Stale if self.0.init => 0,
            Fill::Stale | Fill::Zero => self.zero(self.0.requested),
        }
    }

    fn zero(&mut self, bytes: usize) -> usize {
        debug_assert!(bytes <= self.capacity());
        let body = &mut *self.0;
        let soiled = body.dirty.min(bytes);
        // SAFETY: the block owns `capacity` bytes at `start`, `soiled` is at most that many since
        // `dirty` never is more, and `&mut self` means that there is no other access.
        unsafe { body.start.write_bytes(0, soiled) };
        if soiled == body.dirty {
            body.dirty = 0;
            body.init = true;
        }
        bytes - soiled
    }

    /// Whether freeing it returns it to the allocator of the process, which may keep it.
    pub(in crate::host_pool) fn is_on_heap(&self) -> bool {
        self.0.memory.is_on_heap()
    }

    /// Locks its pages in memory, if it shares them with no other block. Returns whether it did.
    pub(in crate::host_pool) fn pin(&self) -> bool {
        let lock = Extras { lock: true, ..Extras::default() };
        !self.0.memory.request(lock).lock
    }

    /// Undoes [`pin`](Block::pin).
    pub(in crate::host_pool) fn unpin(&self) {
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
    fn only_soiled_bytes_are_zeroed() {
        let mut block = block(4096);
        block.soil(100);
        // SAFETY: the block has 4096 bytes.
        unsafe { block.0.start.write_bytes(7, 100) };
        assert_eq!(block.zero(4000), 3900);
        assert!(bytes(&block).iter().all(|&byte| byte == 0));
        assert_eq!(block.zero(4096), 4096);
    }

    #[test]
    fn zeroing_a_part_keeps_the_rest_soiled() {
        let mut block = block(4096);
        // SAFETY: the block has 4096 bytes.
        unsafe { block.0.start.write_bytes(7, 1000) };
        block.soil(1000);
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
