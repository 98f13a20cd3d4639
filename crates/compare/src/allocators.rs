//! cenote's buffer pool, other allocators and the kernel, behind one trait.
#![allow(unsafe_code, reason = "calls allocators directly")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

use cenote::{BufferPool, UninitBuffer};

use crate::Result;
use crate::mapping::Mapping;

/// Allocates and frees blocks of floats.
pub(crate) trait Allocator {
    /// An allocated block.
    type Block;

    /// Allocates a block of uninitialized floats.
    fn alloc(&mut self, floats: usize) -> Result<Self::Block>;

    /// Frees a block.
    fn free(&mut self, block: Self::Block);

    /// The bytes of a block, for writing.
    fn bytes(block: &mut Self::Block) -> &mut [MaybeUninit<u8>];
}

/// cenote's pool of host buffers.
impl Allocator for &BufferPool {
    type Block = UninitBuffer<f32>;

    fn alloc(&mut self, floats: usize) -> Result<UninitBuffer<f32>> {
        Ok(self.acquire(floats)?)
    }

    fn free(&mut self, block: UninitBuffer<f32>) {
        drop(block);
    }

    fn bytes(block: &mut UninitBuffer<f32>) -> &mut [MaybeUninit<u8>] {
        as_bytes(block)
    }
}

fn as_bytes(floats: &mut [MaybeUninit<f32>]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same bytes with the same lifetime, borrowed mutably. `MaybeUninit` permits any content in both types.
    unsafe { slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), size_of_val(floats)) }
}

/// A general allocator, called directly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct General<A>(pub A);

/// The allocator of glibc.
pub(crate) const MALLOC: General<System> = General(System);

/// A block of a general allocator.
#[derive(Debug)]
pub(crate) struct GeneralBlock {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block owns its memory, and every thread may free it.
unsafe impl Send for GeneralBlock {}

impl<A: GlobalAlloc> General<A> {
    fn block(at: *mut u8, layout: Layout) -> Result<GeneralBlock> {
        Ok(GeneralBlock { at: NonNull::new(at).ok_or("out of memory")?, layout })
    }

    fn layout(floats: usize) -> Result<Layout> {
        // `GlobalAlloc` does not allow zero bytes. With the alignment of malloc, `System` calls malloc itself.
        Ok(Layout::from_size_align((floats * 4).max(1), 16)?)
    }

    /// Allocates a block of zeros.
    pub(crate) fn alloc_zeroed(&self, floats: usize) -> Result<GeneralBlock> {
        let layout = Self::layout(floats)?;
        // SAFETY: the size is not zero.
        Self::block(unsafe { self.0.alloc_zeroed(layout) }, layout)
    }
}

impl<A: GlobalAlloc> Allocator for General<A> {
    type Block = GeneralBlock;

    fn alloc(&mut self, floats: usize) -> Result<GeneralBlock> {
        let layout = Self::layout(floats)?;
        // SAFETY: the size is not zero.
        Self::block(unsafe { self.0.alloc(layout) }, layout)
    }

    fn free(&mut self, block: GeneralBlock) {
        // SAFETY: this allocator allocated the block with this layout. Callers free a block with the allocator that
        // they got it from.
        unsafe { self.0.dealloc(block.at.as_ptr(), block.layout) };
    }

    fn bytes(block: &mut GeneralBlock) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the block owns its memory of this size, and is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(block.at.as_ptr().cast(), block.layout.size()) }
    }
}

/// Maps pages of the kernel for every block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mmap;

impl Allocator for Mmap {
    type Block = Mapping;

    fn alloc(&mut self, floats: usize) -> Result<Mapping> {
        Mapping::private((floats * 4).max(1))
    }

    fn free(&mut self, block: Mapping) {
        drop(block);
    }

    fn bytes(block: &mut Mapping) -> &mut [MaybeUninit<u8>] {
        block.bytes()
    }
}

/// The pool of tenferro, for one thread.
#[cfg(feature = "peers")]
impl Allocator for tenferro_cpu_basic::BufferPool {
    type Block = Vec<f32>;

    fn alloc(&mut self, floats: usize) -> Result<Vec<f32>> {
        Ok(self.acquire_with_capacity(floats))
    }

    fn free(&mut self, block: Vec<f32>) {
        tenferro_cpu_basic::PoolScalar::pool_release(self, block);
    }

    fn bytes(block: &mut Vec<f32>) -> &mut [MaybeUninit<u8>] {
        as_bytes(block.spare_capacity_mut())
    }
}
