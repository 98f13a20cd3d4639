//! Raw blocks: memory that knows its size and how to free itself.
//!
//! Contract: while a [`Block`] lives, its `capacity` bytes at `start` are allocated, aligned to
//! [`ALIGN`], and referred to by nothing but the block. The bytes from `dirty` on are zero, because
//! that is how the system gave them. If `init` is set, every byte has been written at some time.
#![allow(unsafe_code, reason = "zeroes memory that no slice may be made of")]

use std::ptr::NonNull;

use super::class::{self, Fit};
use super::credit::Credit;
use super::memory::{self, ALIGN, Extras, Memory};
use super::shard::Shard;
use crate::error::Result;
use crate::types::dtype::Element;

/// What the bytes of an acquired block must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// Anything, even never written.
    Uninit,
    /// Written, with any values.
    Stale,
    /// Zero.
    Zero,
}

/// One piece of memory, freed when dropped. A pointer wide, because blocks move a lot.
#[derive(Debug)]
pub(super) struct Block(Box<Body>);

/// On a cache line of its own: the threads that use two blocks must not meet.
#[derive(Debug)]
#[repr(align(64))]
struct Body {
    start: NonNull<u8>,
    /// Bytes allocated: at least the capacity.
    size: usize,
    /// Bytes from here on are zero.
    dirty: usize,
    /// `class::size(class)` bytes are used: the capacity.
    class: usize,
    /// Bytes that the present holder asked for.
    asked: usize,
    /// Where it goes when its holder is done; none if it is freed then.
    home: Option<&'static Shard>,
    init: bool,
    memory: Memory,
}

// SAFETY: a block is the sole owner of its memory, like a `Box<[u8]>`.
unsafe impl Send for Body {}
// SAFETY: a shared block allows reading its fields only; the bytes are reached through `start` by
// the handles, which follow the borrow rules themselves.
unsafe impl Sync for Body {}

impl Block {
    /// Bytes that a new block for this request takes up.
    pub(super) fn size_for(fit: Fit) -> usize {
        memory::round_up(class::size(fit.class))
    }

    /// A new block of zeros for this request, and which of the extras were refused.
    pub(super) fn new(fit: Fit, extras: Extras) -> Result<(Block, Extras)> {
        let size = Block::size_for(fit);
        let (start, memory) = Memory::zeroed(size, extras)?;
        let refused = memory.ask(extras);
        Ok((Block::of(start, size, fit.class, 0, memory), refused))
    }

    /// Takes the memory of a vector over; none if it is too small to be of use.
    ///
    /// It is made as large as a new block for the vector's capacity first, if that can be had.
    pub(super) fn from_vec<T: Element>(mut vec: Vec<T>) -> Option<Block> {
        vec.clear();
        fit_to_class(&mut vec);
        let size = vec.capacity() * size_of::<T>();
        let base = vec.as_mut_ptr().cast::<u8>();
        let lead = base.align_offset(ALIGN);
        let class = size.checked_sub(lead).and_then(class::floor)?;
        // SAFETY: `lead <= size`, so this is inside the vector's allocation.
        let start = unsafe { base.add(lead) };
        // SAFETY: a pointer into an allocation is not null.
        let start = unsafe { NonNull::new_unchecked(start) };
        // The vector is kept but not looked at: `start` is the only way to its bytes. What it holds
        // needs no `drop`.
        let memory = Memory::vec(vec);
        Some(Block::of(start, size, class, class::size(class), memory))
    }

    fn of(start: NonNull<u8>, size: usize, class: usize, dirty: usize, memory: Memory) -> Block {
        let init = dirty == 0;
        let body = Body { start, size, dirty, class, asked: 0, home: None, init, memory };
        Block(Box::new(body))
    }

    /// The first byte.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    /// Bytes that may be used.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        class::size(self.0.class)
    }

    /// Bytes that are allocated.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.0.size
    }

    /// The class it is kept in.
    #[inline]
    pub(super) fn class(&self) -> usize {
        self.0.class
    }

    /// What it takes to retain it.
    #[inline]
    pub(super) fn price(&self) -> Credit {
        Credit { bytes: self.0.size, blocks: 1 }
    }

    /// Notes who gets it, for how many bytes, and where it returns to.
    #[inline]
    pub(super) fn lend(&mut self, asked: usize, home: &'static Shard) {
        self.0.asked = asked;
        self.0.home = Some(home);
    }

    /// Bytes that its holder asked for.
    #[inline]
    pub(super) fn asked(&self) -> usize {
        self.0.asked
    }

    /// Where it returns to.
    #[inline]
    pub(super) fn home(&self) -> Option<&'static Shard> {
        self.0.home
    }

    /// It does not return any more.
    pub(super) fn leave_home(&mut self) -> Option<&'static Shard> {
        self.0.home.take()
    }

    /// Notes that the first `bytes` bytes may have been written.
    #[inline]
    pub(super) fn soil(&mut self, bytes: usize) {
        self.0.dirty = self.0.dirty.max(bytes);
    }

    /// Notes that bytes may become uninitialised.
    #[inline]
    pub(super) fn forget_init(&mut self) {
        self.0.init = false;
    }

    /// Makes the bytes asked for what `fill` says; returns how many zeros it need not write.
    pub(super) fn prepare(&mut self, fill: Fill) -> usize {
        match fill {
            Fill::Uninit => 0,
            Fill::Stale if self.0.init => 0,
            Fill::Stale | Fill::Zero => self.zero(self.0.asked),
        }
    }

    fn zero(&mut self, bytes: usize) -> usize {
        debug_assert!(bytes <= self.capacity());
        let body = &mut *self.0;
        let soiled = body.dirty.min(bytes);
        // SAFETY: the block owns `capacity` bytes at `start`, `soiled` is at most that many since
        // `dirty` never is more, and `&mut self` means that nobody is looking.
        unsafe { body.start.write_bytes(0, soiled) };
        if soiled == body.dirty {
            body.dirty = 0;
            body.init = true;
        }
        bytes - soiled
    }

    /// Whether freeing it gives it to the process's allocator, which may keep it.
    pub(super) fn is_on_heap(&self) -> bool {
        self.0.memory.is_on_heap()
    }

    /// Locks its pages in memory, if they are its own; true if that worked.
    pub(super) fn pin(&self) -> bool {
        let wish = Extras { lock: true, ..Extras::default() };
        !self.0.memory.ask(wish).lock
    }

    /// Undoes [`pin`](Block::pin).
    pub(super) fn unpin(&self) {
        self.0.memory.unlock();
    }
}

/// Grows an empty vector until its aligned part holds a class that its capacity fits in.
fn fit_to_class<T: Element>(vec: &mut Vec<T>) {
    let size = vec.capacity() * size_of::<T>();
    let Some(fit) = Fit::new(size).filter(|_| size >= ALIGN) else { return };
    let wanted = class::size(fit.class);
    let usable = size.saturating_sub(vec.as_ptr().cast::<u8>().align_offset(ALIGN));
    if usable < wanted {
        // Wherever it comes to lie, the part before the first multiple of `ALIGN` is smaller.
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
    fn blocks_are_aligned_and_zero_when_asked() {
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
