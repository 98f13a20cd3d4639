//! What a reader can do with the file descriptors that it received: the kernel refuses, or it harms only the reader.
#![allow(unsafe_code, reason = "maps memory in every way")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use cenote::{Tensor, TensorPool};
use rustix::fs::{FallocateFlags, OFlags, SealFlags};

use super::Test;
use super::reader::works;
use crate::support::raw::pool::RawReader;
use crate::support::{all_are, emulated, filled, pool};

pub(crate) const TESTS: &[Test] = &[
    ("header_and_segments_cannot_be_written_by_any_means", read_only),
    ("a_lease_row_can_be_neither_shrunk_nor_sealed", row),
    ("flags_set_on_shared_descriptors_are_harmless", flags),
];

fn attacked() -> (TensorPool, Tensor, RawReader) {
    let pool = pool(8);
    let tensor = filled(&pool, 100_000, 9);
    tensor.descriptor().unwrap();
    let attached = RawReader::to(pool.name());
    assert_eq!(attached.segments.len(), 1);
    (pool, tensor, attached)
}

fn map(fd: BorrowedFd<'_>, prot: i32, flags: i32) -> *mut libc::c_void {
    // SAFETY: the kernel chooses an unused address.
    unsafe { libc::mmap(ptr::null_mut(), 4096, prot, flags, fd.as_raw_fd(), 0) }
}

fn unmap(at: *mut libc::c_void) {
    // SAFETY: mapped by `map`, and no reference to it exists.
    unsafe { libc::munmap(at, 4096) };
}

fn refuses_writing(fd: BorrowedFd<'_>) {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    for prot in [libc::PROT_WRITE, both] {
        assert_eq!(map(fd, prot, libc::MAP_SHARED), libc::MAP_FAILED);
    }
    let readable = map(fd, libc::PROT_READ, libc::MAP_SHARED);
    assert_ne!(readable, libc::MAP_FAILED);
    // SAFETY: our own pages; the kernel refuses.
    assert_eq!(unsafe { libc::mprotect(readable, 4096, both) }, -1);
    // SAFETY: as above. MADV_REMOVE would punch a hole.
    let punched = unsafe { libc::madvise(readable, 4096, libc::MADV_REMOVE) };
    assert!(punched == -1 || emulated(), "qemu ignores advice, and says that it took it");
    unmap(readable);
    assert!(rustix::io::pwrite(fd, b"x", 0).is_err());
    assert!(rustix::io::write(fd, b"x").is_err());
    refuses_resizing(fd);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert!(rustix::fs::fallocate(fd, punch, 0, 4096).is_err());
    // Opened again through /proc: the seal belongs to the file.
    let again = std::fs::OpenOptions::new().read(true).write(true).open(proc_path(fd)).unwrap();
    assert_eq!(map(again.as_fd(), both, libc::MAP_SHARED), libc::MAP_FAILED);
    assert!(rustix::io::pwrite(&again, b"x", 0).is_err());
    assert!(std::fs::OpenOptions::new().write(true).truncate(true).open(proc_path(fd)).is_err());
    write_privately(fd);
}

/// A private mapping can be written, and other processes do not see it.
fn write_privately(fd: BorrowedFd<'_>) {
    let private = map(fd, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
    assert_ne!(private, libc::MAP_FAILED);
    // SAFETY: 4096 bytes of our own.
    unsafe { ptr::write_bytes(private.cast::<u8>(), 0xee, 4096) };
    unmap(private);
}

fn refuses_resizing(fd: BorrowedFd<'_>) {
    let size = rustix::fs::fstat(fd).unwrap().st_size.cast_unsigned();
    for other in [0, 1, size - 1, size + 1, 1 << 40] {
        assert!(rustix::fs::ftruncate(fd, other).is_err(), "{other}");
    }
    assert!(rustix::fs::fallocate(fd, FallocateFlags::empty(), size, 4096).is_err());
}

fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn read_only() {
    let (pool, tensor, attached) = attacked();
    for fd in [attached.header.as_fd(), attached.segments[0].as_fd()] {
        refuses_writing(fd);
        // The owner maps it for writing, so the kernel refuses this seal. `SEAL` forbids further seals.
        assert!(rustix::fs::fcntl_add_seals(fd, SealFlags::WRITE).is_err());
        let _ = rustix::fs::fcntl_add_seals(fd, SealFlags::SEAL);
    }
    assert!(all_are(&tensor, 9));
    works(&pool);
}

fn row() {
    let (pool, _tensor, attached) = attacked();
    refuses_resizing(attached.row.as_fd());
    let _ = rustix::fs::fcntl_add_seals(&attached.row, SealFlags::WRITE);
    let _ = rustix::fs::fcntl_add_seals(&attached.row, SealFlags::FUTURE_WRITE | SealFlags::SEAL);
    works(&pool);
    drop(attached);
    works(&pool);
}

fn flags() {
    let (pool, tensor, attached) = attacked();
    let fds = [&attached.header, &attached.row, &attached.segments[0], &attached.raw.0];
    for fd in fds {
        for flags in [OFlags::NONBLOCK, OFlags::APPEND, OFlags::empty(), OFlags::DIRECT] {
            let _ = rustix::fs::fcntl_setfl(fd, flags);
            works(&pool);
        }
        let _ = rustix::fs::flock(fd, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        let _ = rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0));
    }
    assert!(all_are(&tensor, 9));
    works(&pool);
}
