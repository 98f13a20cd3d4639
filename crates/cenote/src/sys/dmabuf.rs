//! DMA-BUFs: allocated from heaps, made of a memfd, synchronised, waited for.
//!
//! See "Buffer Sharing and Synchronization" in the kernel's documentation, and `linux/dma-buf.h`,
//! `linux/dma-heap.h` and `linux/udmabuf.h`.
//!
//! # Contract
//! Each ioctl is called with the structure that its header declares, laid out as in C.
#![allow(unsafe_code, reason = "ioctl(2) takes whatever the driver wants")]

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::{io, ptr};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl, opcode};

use crate::intervals::DMA_HEAP_ATTEMPTS;
use crate::sync::{AtomicBool, Ordering};

/// See statfs(2): `DMA_BUF_MAGIC`.
pub(crate) const DMA_BUF_MAGIC: rustix::fs::FsWord = 0x444d_4142;

/// The longest name, without the zero at its end.
const MAX_NAME: usize = 31;

const SYNC: Opcode = opcode::write::<u64>(b'b', 0);
const SET_NAME: Opcode = opcode::write::<u64>(b'b', 1);
const HEAP_ALLOC: Opcode = opcode::read_write::<HeapAlloc>(b'H', 0);
const UDMABUF_CREATE: Opcode = opcode::write::<UdmabufCreate>(b'u', 0x42);

const SYNC_END: u64 = 4;

/// What the CPU does between the beginning and the end of an access.
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

/// A DMA-BUF, open for as long as anybody has it.
#[derive(Debug, Clone)]
pub(crate) struct DmaBuf(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // Before the descriptor: what was made of the buffer goes first.
    #[cfg(feature = "gl")]
    ends: crate::sys::drop_callbacks::Ends,
    fd: Arc<OwnedFd>,
    /// It was given to somebody who can write it, and may have it for ever.
    given_away: AtomicBool,
}

impl DmaBuf {
    /// Takes a descriptor that was seen to be one.
    pub(crate) fn new(fd: OwnedFd) -> DmaBuf {
        DmaBuf(Arc::new(Inner {
            #[cfg(feature = "gl")]
            ends: crate::sys::drop_callbacks::Ends::default(),
            fd: Arc::new(fd),
            given_away: AtomicBool::new(false),
        }))
    }

    /// Notes that somebody gets it who can write it.
    pub(crate) fn give_away(&self) {
        self.0.given_away.store(true, Ordering::Relaxed);
    }

    /// Whether somebody was given it. For good, whatever it is used for by now.
    pub(crate) fn is_given_away(&self) -> bool {
        self.0.given_away.load(Ordering::Relaxed)
    }

    /// A number that no other DMA-BUF of the machine has while this one lives.
    #[cfg(feature = "gl")]
    pub(crate) fn inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(self)?.st_ino)
    }

    /// Has something done when nobody in this process has it any more: see [`Ends::add`].
    ///
    /// [`Ends::add`]: crate::sys::drop_callbacks::Ends::add
    #[cfg(feature = "gl")]
    pub(crate) fn at_end(&self, key: u64, end: impl FnOnce() + Send + 'static) -> bool {
        self.0.ends.add(key, end)
    }

    /// Allocates `len` bytes of zeros from an open heap.
    pub(crate) fn from_heap(heap: BorrowedFd<'_>, len: usize) -> io::Result<DmaBuf> {
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
        let mut alloc = HeapAlloc { len: len as u64, fd: 0, fd_flags: flags.bits(), heap_flags: 0 };
        again(|| {
            // SAFETY: the structure is the one that this number stands for.
            let request = unsafe { Updater::<HEAP_ALLOC, _>::new(&mut alloc) };
            // SAFETY: it is read and written during the call, and no other memory is.
            unsafe { ioctl(heap, request) }
        })?;
        let fd = RawFd::try_from(alloc.fd).map_err(io::Error::other)?;
        // SAFETY: the kernel has just made this descriptor, for us.
        Ok(DmaBuf::new(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the first `len` bytes of a memfd, whole pages, a DMA-BUF. It must be sealed against
    /// shrinking, and not against writing.
    pub(crate) fn from_memfd(
        device: BorrowedFd<'_>,
        memfd: BorrowedFd<'_>,
        len: usize,
    ) -> io::Result<DmaBuf> {
        let memfd = memfd.as_raw_fd().unsigned_abs();
        let cloexec = 1;
        let create = UdmabufCreate { memfd, flags: cloexec, offset: 0, size: len as u64 };
        // SAFETY: the call reads the structure that its number stands for and no other memory, and
        // its result is a new descriptor.
        let fd = again(|| unsafe { ioctl(device, MakesFd::<UDMABUF_CREATE, _>(&create)) })?;
        Ok(DmaBuf::new(fd))
    }

    /// Shows a name in `/proc/PID/fdinfo` and the like; it is cut where the kernel has no room.
    pub(crate) fn set_name(&self, name: &str) -> io::Result<()> {
        let mut bytes = [0_u8; MAX_NAME + 1];
        let cut = name.char_indices().map(|(at, c)| at + c.len_utf8());
        let len = cut.take_while(|&end| end <= MAX_NAME).last().unwrap_or(0);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        // SAFETY: the kernel reads a string of at most 32 bytes that ends with a zero.
        again(|| unsafe { ioctl(self.as_fd(), Passes::<SET_NAME, _>(&bytes)) })
    }

    /// Makes what devices wrote visible to the CPU, before it looks.
    pub(crate) fn begin(&self, direction: Direction) -> io::Result<()> {
        self.sync(direction as u64)
    }

    /// Makes what the CPU wrote visible to devices, when it has done.
    pub(crate) fn end(&self, direction: Direction) -> io::Result<()> {
        self.sync(direction as u64 | SYNC_END)
    }

    fn sync(&self, flags: u64) -> io::Result<()> {
        again(|| {
            // SAFETY: this number takes a structure of one `u64`.
            let request = unsafe { Setter::<SYNC, u64>::new(flags) };
            // SAFETY: it is read during the call, and no other memory is.
            unsafe { ioctl(self.as_fd(), request) }
        })
    }

    /// Whether no device reads or writes it: all its fences are done.
    pub(crate) fn is_idle(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(self, PollFlags::OUT)];
        // Whoever cannot tell has no fences.
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

/// Calls until no signal interrupts it; a heap may also say, so many times, that it was not a good moment.
fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    let mut patience = DMA_HEAP_ATTEMPTS;
    loop {
        match call() {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if patience > 1 => patience -= 1,
            done => return Ok(done?),
        }
    }
}

/// An ioctl that reads a structure and makes a descriptor.
struct MakesFd<'a, const OPCODE: Opcode, T>(&'a T);

// SAFETY: the kernel gets a pointer to a `T`, which it only reads. Whoever calls `ioctl` promises
// that `OPCODE` takes one, and that what it returns is a descriptor of ours.
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
        // SAFETY: see above.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// An ioctl whose argument is itself a pointer to what the kernel reads.
struct Passes<'a, const OPCODE: Opcode, T>(&'a T);

// SAFETY: the kernel gets a pointer to a `T`, which it only reads. Whoever calls `ioctl` promises
// that `OPCODE` takes one.
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
    fn a_call_is_made_again_but_not_for_ever() {
        let mut calls = 0;
        let answer = again(|| -> rustix::io::Result<()> {
            calls += 1;
            Err(if calls % 2 == 0 { Errno::INTR } else { Errno::AGAIN })
        });
        assert_eq!(answer.unwrap_err().raw_os_error(), Some(Errno::AGAIN.raw_os_error()));
        assert_eq!(calls, 199);
        let mut answers = [Ok(7), Err(Errno::AGAIN), Err(Errno::INTR)].into_iter().rev();
        assert_eq!(again(|| answers.next().unwrap()).unwrap(), 7);
    }
}
