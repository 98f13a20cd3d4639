//! Shared-memory files that cenote did not create, and descriptors of other things.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, OFlags, SealFlags};

use super::socket::streams;

pub(super) fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let fd = fd.unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

pub(super) fn sealed(bytes: &[u8]) -> OwnedFd {
    let fd = memfd(bytes.len() as u64, SealFlags::SHRINK);
    assert_eq!(rustix::io::pwrite(&fd, bytes, 0).unwrap(), bytes.len());
    fd
}

pub(super) fn sealed_memfd(bytes: &[u8], seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("sealed", flags).unwrap();
    rustix::io::pwrite(&fd, bytes, 0).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

/// Another open file description of the same file.
pub(super) fn reopen(fd: &OwnedFd, flags: OFlags) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap()
}

/// Descriptors of everything except shared memory, each with the name that an error must use.
pub(super) fn other_descriptors() -> Vec<(OwnedFd, &'static str)> {
    let (reader, writer) = std::io::pipe().unwrap();
    vec![
        (File::open(std::env::current_exe().unwrap()).unwrap().into(), "an ordinary file"),
        (File::open("/").unwrap().into(), "a directory"),
        (reader.into(), "a pipe"),
        (writer.into(), "a pipe"),
        (streams().0, "a socket"),
        (File::open("/dev/zero").unwrap().into(), "a character device"),
        (reopen(&sealed(&[7; 8]), OFlags::PATH), "only a path (O_PATH)"),
    ]
}
