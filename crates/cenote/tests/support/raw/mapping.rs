//! Shared memory that a hostile process can still write after it was sealed.
#![allow(unsafe_code, reason = "mmap")]

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags};

/// Words that can be written although their file is sealed.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: *mut AtomicU64,
    words: usize,
}

// SAFETY: the words are atomic, and mapped as long as this lives.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn of(fd: &OwnedFd, words: usize) -> Mapping {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address. The file is at least this long, and stays so.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), words * 8, prot, MapFlags::SHARED, fd, 0)
        };
        Mapping { at: at.unwrap().cast(), words }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `words` words are mapped, and only accessed as atomics.
        unsafe { std::slice::from_raw_parts(self.at, self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: references to the words borrow `self`, so none is left.
        unsafe { rustix::mm::munmap(self.at.cast(), self.words * 8) }.unwrap();
    }
}
