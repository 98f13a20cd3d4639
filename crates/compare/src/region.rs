//! Bare memory of the kernel, for what is compared with: mapped, and given back when dropped.
#![allow(unsafe_code, reason = "calls mmap(2) directly")]

use std::ffi::c_void;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{ptr, slice};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::Result;

/// At least a page, at a page's start.
#[derive(Debug)]
pub(crate) struct Region {
    at: *mut c_void,
    bytes: usize,
}

impl Region {
    /// A shared memory file that is at least that long.
    pub(crate) fn shared(file: &impl AsFd, bytes: usize, write: bool) -> Result<Region> {
        let prot = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: with a null address the kernel chooses a place that nobody uses.
        let at = unsafe { mmap(ptr::null_mut(), bytes, prot, MapFlags::SHARED, file, 0) }?;
        Ok(Region { at, bytes })
    }

    /// Private zero pages.
    pub(crate) fn private(bytes: usize) -> Result<Region> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: with a null address the kernel chooses a place that nobody uses.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), bytes, prot, MapFlags::PRIVATE) }?;
        Ok(Region { at, bytes })
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: mapped for as long as `self`, aligned to a page and at least one long; files are never
        // cut here; whoever else maps it accesses it atomically.
        unsafe { &*self.at.cast::<AtomicU64>() }
    }

    /// What the other process wrote there.
    pub(crate) fn first_word(&self) -> u64 {
        self.word().load(Ordering::Acquire)
    }

    /// The region must be writable.
    pub(crate) fn set_first_word(&self, value: u64) {
        self.word().store(value, Ordering::Release);
    }

    /// The bytes of a private region.
    pub(crate) fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: mapped writable for as long as `self`, private to this process, and borrowed uniquely.
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

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and no reference outlives `self`.
        let done = unsafe { munmap(self.at, self.bytes) };
        debug_assert!(done.is_ok());
    }
}
