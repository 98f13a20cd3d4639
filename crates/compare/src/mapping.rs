//! Memory that this program maps directly: what the kernel costs without a library.
#![allow(unsafe_code, reason = "calls mmap(2) directly")]

use std::ffi::c_void;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{ptr, slice};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::Result;

/// A mapping: page-aligned, and at least one page long. Dropping it unmaps the memory.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: *mut c_void,
    bytes: usize,
}

impl Mapping {
    /// Maps a shared memory file of at least this length.
    pub(crate) fn shared(file: &impl AsFd, bytes: usize, write: bool) -> Result<Mapping> {
        let prot = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: with a null address the kernel chooses an unused address.
        let at = unsafe { mmap(ptr::null_mut(), bytes, prot, MapFlags::SHARED, file, 0) }?;
        Ok(Mapping { at, bytes })
    }

    /// Maps private pages of zeros.
    pub(crate) fn private(bytes: usize) -> Result<Mapping> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: with a null address the kernel chooses an unused address.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), bytes, prot, MapFlags::PRIVATE) }?;
        Ok(Mapping { at, bytes })
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the mapping lives as long as `self`, is page-aligned and at least one page long. This program never
        // truncates the files. Every process that maps them accesses this word atomically.
        unsafe { &*self.at.cast::<AtomicU64>() }
    }

    /// Reads the first word, which another process may have written.
    pub(crate) fn first_word(&self) -> u64 {
        self.word().load(Ordering::Acquire)
    }

    /// Writes the first word. The mapping must be writable.
    pub(crate) fn set_first_word(&self, value: u64) {
        self.word().store(value, Ordering::Release);
    }

    /// The bytes of a private mapping.
    pub(crate) fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the mapping is writable, lives as long as `self`, is private to this process, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.at.cast(), self.bytes) }
    }
}

/// Writes a byte to every page.
pub(crate) fn touch(bytes: &mut [MaybeUninit<u8>]) {
    for page in bytes.chunks_mut(4096) {
        page[0].write(1);
    }
    black_box(bytes);
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `self` made this mapping, and no reference into it outlives `self`.
        let done = unsafe { munmap(self.at, self.bytes) };
        debug_assert!(done.is_ok());
    }
}
