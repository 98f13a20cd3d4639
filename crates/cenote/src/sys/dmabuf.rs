//! DMA-BUFs: how to allocate them from a heap or make them of a memfd, and how to synchronise CPU and devices.
//!
//! See "Buffer Sharing and Synchronization" in the kernel's documentation, and `linux/dma-buf.h`,
//! `linux/dma-heap.h` and `linux/udmabuf.h`.
//!
//! # Contract
//! Each ioctl is called with the structure that its header declares, laid out as in C.
#![allow(unsafe_code, reason = "the arguments of ioctl(2) depend on the driver")]

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::{io, ptr};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl, opcode};

use crate::intervals::DMA_HEAP_ATTEMPTS;
use crate::sync::{AtomicBool, Ordering};
#[cfg(feature = "gl")]
use crate::sys::drop_callbacks::DropCallbacks;

/// See statfs(2): `DMA_BUF_MAGIC`.
pub(crate) const DMA_BUF_MAGIC: rustix::fs::FsWord = 0x444d_4142;

/// The most bytes of a name, without the zero at its end.
const MAX_NAME: usize = 31;

const SYNC: Opcode = opcode::write::<u64>(b'b', 0);
const SET_NAME: Opcode = opcode::write::<u64>(b'b', 1);
const HEAP_ALLOC: Opcode = opcode::read_write::<HeapAlloc>(b'H', 0);
const UDMABUF_CREATE: Opcode = opcode::write::<UdmabufCreate>(b'u', 0x42);

const SYNC_END: u64 = 4;

/// What the CPU does during an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Direction {
    Read = 1,
    ReadWrite = 3,
}

/// `struct dma_heap_allocation_data`.
#[repr(C)]
#[derive(Debug)]
struct HeapAlloc {
    len: u64,
    fd: u32,
    fd_flags: u32,
    heap_flags: u64,
}

/// `struct udmabuf_create`.
#[repr(C)]
#[derive(Debug)]
struct UdmabufCreate {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// A DMA-BUF. Its descriptor stays open while a clone of this exists.
#[derive(Debug, Clone)]
pub(crate) struct DmaBuf(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // Before the descriptor, so that the callbacks run before it is closed.
    #[cfg(feature = "gl")]
    drop_callbacks: DropCallbacks,
    fd: Arc<OwnedFd>,
    /// Another process or library has the descriptor, so it can write the buffer, and may keep it for ever.
    exported: AtomicBool,
}

impl DmaBuf {
    /// Takes a descriptor that is known to be a DMA-BUF.
    pub(crate) fn new(fd: OwnedFd) -> DmaBuf {
        DmaBuf(Arc::new(Inner {
            #[cfg(feature = "gl")]
            drop_callbacks: DropCallbacks::default(),
            fd: Arc::new(fd),
            exported: AtomicBool::new(false),
        }))
    }

    /// Notes that the descriptor leaves this crate: from here on others can write the buffer.
    pub(crate) fn set_exported(&self) {
        self.0.exported.store(true, Ordering::Relaxed);
    }

    /// Whether the descriptor ever left this crate.
    pub(crate) fn is_exported(&self) -> bool {
        self.0.exported.load(Ordering::Relaxed)
    }

    /// A number that no other DMA-BUF of the machine has while this one exists.
    #[cfg(feature = "gl")]
    pub(crate) fn inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(self)?.st_ino)
    }

    /// Calls `callback` when the last clone is dropped. See [`DropCallbacks::add`].
    #[cfg(feature = "gl")]
    pub(crate) fn on_drop(&self, key: u64, callback: impl FnOnce() + Send + 'static) -> bool {
        self.0.drop_callbacks.add(key, callback)
    }

    /// Allocates `len` bytes of zeros from an open heap.
    pub(crate) fn from_heap(heap: BorrowedFd<'_>, len: usize) -> io::Result<DmaBuf> {
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
        let mut alloc = HeapAlloc { len: len as u64, fd: 0, fd_flags: flags.bits(), heap_flags: 0 };
        retry(|| {
            // SAFETY: this ioctl takes this structure.
            let request = unsafe { Updater::<HEAP_ALLOC, _>::new(&mut alloc) };
            // SAFETY: the kernel reads and writes the structure during the call, and no other memory.
            unsafe { ioctl(heap, request) }
        })?;
        let fd = RawFd::try_from(alloc.fd).map_err(io::Error::other)?;
        // SAFETY: the kernel has just made this descriptor, and only this code has its number.
        Ok(DmaBuf::new(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes a DMA-BUF of the first `len` bytes of a memfd, which are whole pages. The memfd must be sealed against
    /// shrinking, and not against writing.
    pub(crate) fn from_memfd(
        device: BorrowedFd<'_>,
        memfd: BorrowedFd<'_>,
        len: usize,
    ) -> io::Result<DmaBuf> {
        let memfd = memfd.as_raw_fd().unsigned_abs();
        let cloexec = 1;
        let create = UdmabufCreate { memfd, flags: cloexec, offset: 0, size: len as u64 };
        // SAFETY: this ioctl reads this structure and no other memory, and returns a new descriptor.
        let fd = retry(|| unsafe { ioctl(device, MakesFd::<UDMABUF_CREATE, _>(&create)) })?;
        Ok(DmaBuf::new(fd))
    }

    /// Sets the name that `/proc/PID/fdinfo` shows, cut to what the kernel has room for.
    pub(crate) fn set_name(&self, name: &str) -> io::Result<()> {
        let mut bytes = [0_u8; MAX_NAME + 1];
        let cut = name.char_indices().map(|(at, c)| at + c.len_utf8());
        let len = cut.take_while(|&end| end <= MAX_NAME).last().unwrap_or(0);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        // SAFETY: the kernel reads a string of at most 32 bytes that ends with a zero.
        retry(|| unsafe { ioctl(self.as_fd(), Passes::<SET_NAME, _>(&bytes)) })
    }

    /// Begins an access of the CPU: makes what devices wrote visible to it.
    pub(crate) fn begin(&self, direction: Direction) -> io::Result<()> {
        self.sync(direction as u64)
    }

    /// Ends an access of the CPU: makes what it wrote visible to devices.
    pub(crate) fn end(&self, direction: Direction) -> io::Result<()> {
        self.sync(direction as u64 | SYNC_END)
    }

    fn sync(&self, flags: u64) -> io::Result<()> {
        retry(|| {
            // SAFETY: this ioctl takes a structure of one `u64`.
            let request = unsafe { Setter::<SYNC, u64>::new(flags) };
            // SAFETY: the kernel reads it during the call, and no other memory.
            unsafe { ioctl(self.as_fd(), request) }
        })
    }

    /// Whether no device reads or writes the buffer: all its fences have been signalled.
    pub(crate) fn is_idle(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(self, PollFlags::OUT)];
        // A driver that cannot be polled has no fences.
        poll(&mut fds, Some(&now)).is_ok_and(|_| !fds[0].revents().is_empty())
    }

    pub(crate) fn shared_fd(&self) -> &Arc<OwnedFd> {
        &self.0.fd
    }
}

impl AsFd for DmaBuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// Repeats a call that a signal interrupted, and up to [`DMA_HEAP_ATTEMPTS`] times one that returns `EAGAIN`.
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    let mut attempts = DMA_HEAP_ATTEMPTS;
    loop {
        match call() {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if attempts > 1 => attempts -= 1,
            done => return Ok(done?),
        }
    }
}

/// An ioctl that reads a structure and returns a new descriptor.
struct MakesFd<'a, const OPCODE: Opcode, T>(&'a T);

// SAFETY: the kernel gets a pointer to a `T`, which it only reads. The caller of `ioctl` promises that `OPCODE` takes a
// `T` and returns a new descriptor.
unsafe impl<const OPCODE: Opcode, T> Ioctl for MakesFd<'_, OPCODE, T> {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::from_ref(self.0).cast_mut().cast()
    }

    unsafe fn output_from_ptr(fd: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: the caller promised that it is a new descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// An ioctl that reads a structure and returns nothing.
struct Passes<'a, const OPCODE: Opcode, T>(&'a T);

// SAFETY: the kernel gets a pointer to a `T`, which it only reads. The caller of `ioctl` promises that `OPCODE` takes a
// `T`.
unsafe impl<const OPCODE: Opcode, T> Ioctl for Passes<'_, OPCODE, T> {
    type Output = ();
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::from_ref(self.0).cast_mut().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_retried_but_not_for_ever() {
        let mut calls = 0;
        let answer = retry(|| -> rustix::io::Result<()> {
            calls += 1;
            Err(if calls % 2 == 0 { Errno::INTR } else { Errno::AGAIN })
        });
        assert_eq!(answer.unwrap_err().raw_os_error(), Some(Errno::AGAIN.raw_os_error()));
        assert_eq!(calls, 199);
        let mut answers = [Ok(7), Err(Errno::AGAIN), Err(Errno::INTR)].into_iter().rev();
        assert_eq!(retry(|| answers.next().unwrap()).unwrap(), 7);
    }
}
