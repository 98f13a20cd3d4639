//! Raw blocks: memory that knows its size and how to free itself.
//!
//! Contract: while a [`Block`] lives, `capacity` bytes at `start` are allocated, aligned to
//! [`ALIGN`], and referred to by nothing but the block. The bytes from `dirty` on are zero, because
//! that is how the system gave them. If `init` is set, every byte has been written at some time.

#![allow(unsafe_code, reason = "allocates and frees memory by hand")]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::class::{self, Fit};
use super::credit::Credit;
use super::pages;
use crate::dtype::Element;

/// Every block starts at a multiple of this: a cache line, and the widest vector register.
pub(super) const ALIGN: usize = 64;

/// Blocks from this size on are mapped, where the platform can.
pub(super) const MAPPED_FROM: usize = 128 << 10;

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

/// Where a block's memory came from, hence how it is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Nowhere: the block of an empty buffer.
    Nothing,
    /// The global allocator.
    Heap,
    /// Mapped pages.
    Pages,
}

/// One piece of memory, freed when dropped.
#[derive(Debug)]
pub(super) struct Block {
    start: NonNull<u8>,
    /// Bytes allocated, `lead` and the unused end included.
    size: usize,
    /// Bytes from here on are zero.
    dirty: usize,
    /// `class::size(class)` bytes are used: the capacity.
    class: u16,
    /// Bytes of the allocation before `start`.
    lead: u8,
    /// Power of two that the allocation was aligned to.
    align_log2: u8,
    origin: Origin,
    init: bool,
}

// SAFETY: a block is the sole owner of its memory, like a `Box<[u8]>`.
unsafe impl Send for Block {}
// SAFETY: a shared block allows reading its fields only; the bytes are reached through `start` by
// the handles, which follow the borrow rules themselves.
unsafe impl Sync for Block {}

impl Block {
    /// The block of an empty buffer: it owns nothing and starts at an aligned address.
    pub(super) const EMPTY: Block = Block {
        start: NonNull::without_provenance(std::num::NonZero::new(ALIGN).expect("not zero")),
        size: 0,
        dirty: 0,
        class: 0,
        lead: 0,
        align_log2: 6,
        origin: Origin::Nothing,
        init: true,
    };

    /// Bytes that a new block for this request takes up.
    pub(super) fn size_for(fit: Fit) -> usize {
        let size = class::size(fit.class);
        if size < MAPPED_FROM { size } else { pages::round_up(size).unwrap_or(size) }
    }

    /// A new block for this request, or none if there is no memory.
    pub(super) fn new(fit: Fit, fill: Fill, huge: bool) -> Option<Block> {
        if class::size(fit.class) < MAPPED_FROM {
            return Block::from_heap(fit, fill);
        }
        Block::from_pages(fit, huge).or_else(|| Block::from_heap(fit, fill))
    }

    fn from_pages(fit: Fit, huge: bool) -> Option<Block> {
        let size = Block::size_for(fit);
        let start = pages::map(size, huge)?;
        Some(Block::of(start, size, fit.class, Origin::Pages, 0))
    }

    fn from_heap(fit: Fit, fill: Fill) -> Option<Block> {
        let size = Block::size_for(fit);
        let layout = Layout::from_size_align(size, ALIGN).ok()?;
        let start = match fill {
            // SAFETY: no class is of size zero.
            Fill::Uninit => unsafe { alloc(layout) },
            // SAFETY: as above.
            Fill::Stale | Fill::Zero => unsafe { alloc_zeroed(layout) },
        };
        let dirty = if fill == Fill::Uninit { size } else { 0 };
        Some(Block::of(NonNull::new(start)?, size, fit.class, Origin::Heap, dirty))
    }

    fn of(start: NonNull<u8>, size: usize, class: usize, origin: Origin, dirty: usize) -> Block {
        let class = narrow(class);
        Block { start, size, dirty, class, origin, init: dirty == 0, ..Block::NO_LEAD }
    }

    /// Only the fields that say how the allocation lies around the block.
    const NO_LEAD: Block = Block::EMPTY;

    /// Takes the memory of a vector over, or returns it when it is too small to be of use.
    pub(super) fn from_vec<T: Element>(vec: Vec<T>) -> Result<Block, Vec<T>> {
        let size = vec.capacity() * size_of::<T>();
        let lead = vec.as_ptr().cast::<u8>().align_offset(ALIGN);
        let Some(class) = size.checked_sub(lead).and_then(class::floor) else {
            return Err(vec);
        };
        let mut vec = ManuallyDrop::new(vec);
        // SAFETY: `lead <= size`, so this is inside the allocation of the vector.
        let start = unsafe { vec.as_mut_ptr().cast::<u8>().add(lead) };
        Ok(Block {
            // SAFETY: a pointer into an allocation is not null.
            start: unsafe { NonNull::new_unchecked(start) },
            size,
            dirty: class::size(class),
            class: narrow(class),
            lead: narrow(lead),
            align_log2: narrow(align_of::<T>().ilog2() as usize),
            origin: Origin::Heap,
            init: false,
        })
    }

    /// The first byte.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes that may be used.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        if self.size == 0 { 0 } else { class::size(self.class()) }
    }

    /// Bytes that are allocated.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The class it is kept in.
    #[inline]
    pub(super) fn class(&self) -> usize {
        usize::from(self.class)
    }

    /// What it takes to retain it.
    #[inline]
    pub(super) fn price(&self) -> Credit {
        Credit { bytes: self.size, blocks: 1 }
    }

    /// Notes that the first `bytes` bytes may be written to.
    #[inline]
    pub(super) fn soil(&mut self, bytes: usize) {
        self.dirty = self.dirty.max(bytes);
    }

    /// Notes that bytes may become uninitialised.
    #[inline]
    pub(super) fn forget_init(&mut self) {
        self.init = false;
    }

    /// Makes the first `bytes` bytes what `fill` asks for; returns how many zeros it need not write.
    pub(super) fn prepare(&mut self, bytes: usize, fill: Fill) -> usize {
        debug_assert!(bytes <= self.capacity());
        match fill {
            Fill::Uninit => 0,
            Fill::Stale if self.init => 0,
            Fill::Stale | Fill::Zero => self.zero(bytes),
        }
    }

    fn zero(&mut self, bytes: usize) -> usize {
        let soiled = self.dirty.min(bytes);
        // SAFETY: the block owns `capacity` bytes at `start`, `soiled` is at most that many since
        // neither `dirty` nor `bytes` is more, and `&mut self` means that nobody is looking.
        unsafe { self.start.write_bytes(0, soiled) };
        if soiled == self.dirty {
            self.dirty = 0;
            self.init = true;
        }
        bytes - soiled
    }

    /// Asks for what the pool's options want for large blocks; returns what was not granted.
    pub(super) fn enhance(&self, wanted: Extras) -> Extras {
        let mapped = self.origin == Origin::Pages;
        Extras {
            huge_pages: wanted.huge_pages && !(mapped && pages::want_huge(self.start, self.size)),
            prefault: wanted.prefault && !(mapped && pages::prefault(self.start, self.size)),
            lock: wanted.lock && !self.pin(),
        }
    }

    /// Locks its pages in memory, if they are its own; true if that worked.
    pub(super) fn pin(&self) -> bool {
        self.origin == Origin::Pages && pages::lock(self.start, self.size)
    }

    /// Undoes [`pin`](Block::pin).
    pub(super) fn unpin(&self) {
        pages::unlock(self.start, self.size);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.origin {
            Origin::Nothing => {}
            // SAFETY: `size` bytes at `start` are what `pages::map` returned, and the owner is gone.
            Origin::Pages => unsafe { pages::unmap(self.start, self.size) },
            Origin::Heap => {
                // SAFETY: the allocation was made with this size and alignment, so they are valid.
                let layout = unsafe {
                    Layout::from_size_align_unchecked(self.size, 1 << self.align_log2)
                };
                // SAFETY: `lead` bytes lie between the start of the allocation and `start`.
                let base = unsafe { self.start.sub(usize::from(self.lead)) };
                // SAFETY: `base` was allocated with `layout`, and the owner is gone.
                unsafe { dealloc(base.as_ptr(), layout) };
            }
        }
    }
}

/// Costly properties that large blocks can ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extras {
    pub(super) huge_pages: bool,
    pub(super) prefault: bool,
    pub(super) lock: bool,
}

/// For numbers known to be small: classes, offsets below 64, logarithms.
fn narrow<N: TryFrom<usize>>(number: usize) -> N {
    N::try_from(number).ok().expect("a small number")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(block: &Block) -> &[u8] {
        assert!(block.init);
        // SAFETY: `init` means that every byte was written.
        unsafe { std::slice::from_raw_parts(block.start.as_ptr(), block.capacity()) }
    }

    #[test]
    fn blocks_are_aligned_and_zero_when_asked() {
        for size in [1, 64, 100, 4096, MAPPED_FROM, 5 << 20] {
            let block = Block::new(Fit::new(size).unwrap(), Fill::Zero, true).unwrap();
            assert_eq!(block.start.as_ptr().align_offset(ALIGN), 0);
            assert!(block.capacity() >= size);
            assert!(bytes(&block).iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn only_soiled_bytes_are_zeroed() {
        let mut block = Block::new(Fit::new(4096).unwrap(), Fill::Zero, false).unwrap();
        block.soil(100);
        // SAFETY: the block has 4096 bytes.
        unsafe { block.start.write_bytes(7, 100) };
        assert_eq!(block.prepare(4000, Fill::Zero), 3900);
        assert!(bytes(&block).iter().all(|&byte| byte == 0));
        assert_eq!(block.prepare(4096, Fill::Zero), 4096);
    }

    #[test]
    fn zeroing_a_part_keeps_the_rest_soiled() {
        let mut block = Block::new(Fit::new(4096).unwrap(), Fill::Zero, false).unwrap();
        // SAFETY: the block has 4096 bytes.
        unsafe { block.start.write_bytes(7, 1000) };
        block.soil(1000);
        assert_eq!(block.prepare(10, Fill::Zero), 0);
        assert_eq!(bytes(&block)[10..1000], [7; 990]);
        assert_eq!(block.prepare(2000, Fill::Zero), 1000);
        assert!(bytes(&block).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_vector_of_any_alignment_becomes_a_block() {
        for offset in 0..70 {
            let vec: Vec<u8> = Vec::with_capacity(1000 + offset);
            let block = Block::from_vec(vec).unwrap();
            assert_eq!(block.start.as_ptr().align_offset(ALIGN), 0);
            assert!(block.capacity() + usize::from(block.lead) <= block.size());
        }
        assert!(Block::from_vec(vec![1.0_f64; 512]).is_ok());
        assert!(Block::from_vec(vec![true; 3]).is_err());
        assert!(Block::from_vec(Vec::<i32>::new()).is_err());
    }
}
