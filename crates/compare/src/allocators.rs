//! Where blocks of memory come from: cenote's pool, and everybody else's, behind one trait.
#![allow(unsafe_code, reason = "calls allocators directly")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

use cenote::{BufferPool, UninitBuffer};

use crate::Result;
use crate::region::Region;

/// Gives blocks of so many floats, and takes them back.
pub(crate) trait Source {
    /// One block.
    type Block;

    /// A block that was not written.
    fn take(&mut self, floats: usize) -> Result<Self::Block>;

    /// Back.
    fn give(&mut self, block: Self::Block);

    /// Its bytes, to be written.
    fn bytes(block: &mut Self::Block) -> &mut [MaybeUninit<u8>];
}

/// cenote's host buffers.
impl Source for &BufferPool {
    type Block = UninitBuffer<f32>;

    fn take(&mut self, floats: usize) -> Result<UninitBuffer<f32>> {
        Ok(self.acquire(floats)?)
    }

    fn give(&mut self, block: UninitBuffer<f32>) {
        drop(block);
    }

    fn bytes(block: &mut UninitBuffer<f32>) -> &mut [MaybeUninit<u8>] {
        as_bytes(block)
    }
}

fn as_bytes(floats: &mut [MaybeUninit<f32>]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same bytes, which may be uninitialized there as here, for as long and as uniquely.
    unsafe { slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), size_of_val(floats)) }
}

/// An allocator of the whole process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw<A>(pub A);

/// glibc's.
pub(crate) const MALLOC: Raw<System> = Raw(System);

/// What it gave.
#[derive(Debug)]
pub(crate) struct RawBlock {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory, which any thread may free.
unsafe impl Send for RawBlock {}

impl<A: GlobalAlloc> Raw<A> {
    fn block(at: *mut u8, layout: Layout) -> Result<RawBlock> {
        Ok(RawBlock { at: NonNull::new(at).ok_or("out of memory")?, layout })
    }

    fn layout(floats: usize) -> Result<Layout> {
        // Zero bytes cannot be asked for. The alignment is that of malloc, so that it is malloc which is called.
        Ok(Layout::from_size_align((floats * 4).max(1), 16)?)
    }

    /// A block of zeros.
    pub(crate) fn take_zeroed(&self, floats: usize) -> Result<RawBlock> {
        let layout = Self::layout(floats)?;
        // SAFETY: the size is not zero.
        Self::block(unsafe { self.0.alloc_zeroed(layout) }, layout)
    }
}

impl<A: GlobalAlloc> Source for Raw<A> {
    type Block = RawBlock;

    fn take(&mut self, floats: usize) -> Result<RawBlock> {
        let layout = Self::layout(floats)?;
        // SAFETY: the size is not zero.
        Self::block(unsafe { self.0.alloc(layout) }, layout)
    }

    fn give(&mut self, block: RawBlock) {
        // SAFETY: it was allocated with this layout, here: blocks do not go from one allocator to another.
        unsafe { self.0.dealloc(block.at.as_ptr(), block.layout) };
    }

    fn bytes(block: &mut RawBlock) -> &mut [MaybeUninit<u8>] {
        // SAFETY: allocated with that size, owned by the block, which is borrowed.
        unsafe { slice::from_raw_parts_mut(block.at.as_ptr().cast(), block.layout.size()) }
    }
}

/// The kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mmap;

impl Source for Mmap {
    type Block = Region;

    fn take(&mut self, floats: usize) -> Result<Region> {
        Region::private((floats * 4).max(1))
    }

    fn give(&mut self, block: Region) {
        drop(block);
    }

    fn bytes(block: &mut Region) -> &mut [MaybeUninit<u8>] {
        block.bytes()
    }
}

/// tenferro's pool, for one thread.
#[cfg(feature = "peers")]
impl Source for tenferro_cpu_basic::BufferPool {
    type Block = Vec<f32>;

    fn take(&mut self, floats: usize) -> Result<Vec<f32>> {
        Ok(self.acquire_with_capacity(floats))
    }

    fn give(&mut self, block: Vec<f32>) {
        tenferro_cpu_basic::PoolScalar::pool_release(self, block);
    }

    fn bytes(block: &mut Vec<f32>) -> &mut [MaybeUninit<u8>] {
        as_bytes(block.spare_capacity_mut())
    }
}
