//! Zeroed, aligned memory from the allocator of the process.
//!
//! # Contract
//! A [`HeapBlock`] owns one allocation, inside which `ptr .. ptr + len` is aligned and initialised.
#![allow(unsafe_code, reason = "std::alloc hands out raw memory")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;

/// An aligned block of heap memory.
#[derive(Debug)]
pub(crate) struct HeapBlock {
    ptr: NonNull<u8>,
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an allocation belongs to the process, not to a thread, and has no interior mutability.
unsafe impl Send for HeapBlock {}
// SAFETY: as above; `&HeapBlock` gives access to nothing but the address.
unsafe impl Sync for HeapBlock {}

impl HeapBlock {
    /// Allocates `len` zero bytes; `len` is at least 1.
    ///
    /// It adds the room for alignment itself: an over-aligned `alloc_zeroed` writes the zeros, while an ordinary one is
    /// calloc, which does not touch new pages.
    pub(crate) fn zeroed(len: usize, align: usize) -> io::Result<HeapBlock> {
        let out_of_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let size = len.checked_add(align - 1).ok_or_else(out_of_memory)?;
        let layout = Layout::from_size_align(size, 1).map_err(|_| out_of_memory())?;
        debug_assert!(len > 0);
        // SAFETY: `size >= len > 0`.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        let shift = base.as_ptr().align_offset(align);
        // SAFETY: `align` is a power of two, so `shift <= align - 1`, and `shift + len <= size`.
        let ptr = unsafe { base.add(shift) };
        Ok(HeapBlock { ptr, base, layout })
    }

    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        // SAFETY: `base` came from this allocator with this layout, and is freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
