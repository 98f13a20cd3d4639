//! Shared memory that a stranger can still write after it was sealed.
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

// SAFETY: the words are atomic, and there for as long as the mapping lives.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn of(fd: &OwnedFd, words: usize) -> Mapping {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place; the file is longer than this, and stays so.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), words * 8, prot, MapFlags::SHARED, fd, 0)
        };
        Mapping { at: at.unwrap().cast(), words }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped, and only ever accessed as atomics.
        unsafe { std::slice::from_raw_parts(self.at, self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference any more.
        unsafe { rustix::mm::munmap(self.at.cast(), self.words * 8) }.unwrap();
    }
}
