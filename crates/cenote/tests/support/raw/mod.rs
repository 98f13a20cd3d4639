//! The protocols as raw bytes, for peers that do not use cenote's code.
//!
//! The constants are declared again here instead of imported, so that a change of the wire format fails
//! a test.

pub(crate) mod mapping;
pub(crate) mod pool;
pub(crate) mod topic;

use std::os::fd::{AsFd, OwnedFd};

/// Shared memory as an owner makes it: with all pages reserved, and with these seals.
pub(crate) fn memfd(len: u64, seals: rustix::fs::SealFlags) -> OwnedFd {
    use rustix::fs::{FallocateFlags, MemfdFlags};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("raw", flags).unwrap();
    if len > 0 {
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len).unwrap();
    }
    if !seals.is_empty() {
        rustix::fs::fcntl_add_seals(fd.as_fd(), seals).unwrap();
    }
    fd
}
