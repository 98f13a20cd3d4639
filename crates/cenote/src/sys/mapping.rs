//! Mapped pages, which are unmapped when dropped.
//!
//! # Contract
//! A [`Map`] alone owns the pages `ptr .. ptr + len` (rounded up to whole pages): no other code unmaps or replaces them
//! while it exists. They are readable, and writable unless it was made with [`Access::Read`]. They hold initialised
//! bytes, because the kernel fills new pages with zeros.
#![allow(unsafe_code, reason = "mmap(2) hands out raw memory")]

use std::any::Any;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{io, mem};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::sys::dmabuf::DmaBuf;
use crate::sys::fork::Guarded;
use crate::sys::memfd;

/// What the CPU may do with mapped pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    fn prot(self) -> ProtFlags {
        match self {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

/// A range of mapped pages.
#[derive(Debug)]
pub(crate) struct Map {
    ptr: NonNull<u8>,
    len: usize,
    /// Registers writable shared pages, which a forked child must not write.
    guard: Option<Guarded>,
    /// The file that the registration needs, if the map itself keeps it open.
    fd: Option<Arc<OwnedFd>>,
    /// The DMA-BUF by which devices access the bytes.
    dma: Option<DmaBuf>,
    /// The DMA-BUF itself is mapped, not the memfd below it.
    direct: bool,
    /// Anything else that must live as long.
    kept: Option<Kept>,
}

/// A value that something else waits to see dropped.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

// SAFETY: a mapping belongs to the process, not to a thread, and `Map` has no interior mutability.
unsafe impl Send for Map {}
// SAFETY: as above; `&Map` gives access to nothing but the address.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `len` zero bytes of private memory. No page is touched.
    pub(crate) fn anonymous(len: usize, align: usize) -> io::Result<Map> {
        Map::map_aligned(len, align, |at, flags| {
            let flags = flags | MapFlags::PRIVATE;
            // SAFETY: `at` is null, or the start of `len` bytes that `map_aligned` has reserved.
            Ok(unsafe { mm::mmap_anonymous(at, len, Access::Write.prot(), flags) }?)
        })
    }

    /// Maps the first `len` bytes of a file, shared with all other mappings of it.
    ///
    /// A writable map needs `fd` open while it exists: the caller keeps it open, or hands it to the map
    /// ([`Map::keeping_open`]).
    pub(crate) fn shared(
        fd: BorrowedFd<'_>,
        len: usize,
        align: usize,
        access: Access,
    ) -> io::Result<Map> {
        let mut map = Map::map_aligned(len, align, |at, flags| {
            let flags = flags | MapFlags::SHARED;
            // SAFETY: `at` is null, or the start of `len` bytes that `map_aligned` has reserved.
            Ok(unsafe { mm::mmap(at, len, access.prot(), flags, fd, 0) }?)
        })?;
        if access == Access::Write {
            map.guard = Some(Guarded::map(map.ptr, len, fd.as_raw_fd()));
        }
        Ok(map)
    }

    /// Maps a DMA-BUF, all `len` bytes of it.
    pub(crate) fn dma(dma: DmaBuf, len: usize, align: usize, access: Access) -> io::Result<Map> {
        let mut map = Map::map_aligned(len, align, |at, flags| {
            let flags = flags | MapFlags::SHARED;
            // SAFETY: `at` is null, or the start of `len` bytes that `map_aligned` has reserved.
            Ok(unsafe { mm::mmap(at, len, access.prot(), flags, &dma, 0) }?)
        })?;
        if access == Access::Write {
            map.guard = Some(Guarded::device(map.ptr, len));
        }
        map.direct = true;
        Ok(map.with_dmabuf(dma))
    }

    /// Sets the DMA-BUF by which devices access the bytes.
    pub(crate) fn with_dmabuf(mut self, dma: DmaBuf) -> Map {
        self.dma = Some(dma);
        self
    }

    /// Keeps a value while the map exists.
    pub(crate) fn keeping(mut self, kept: Option<Kept>) -> Map {
        self.kept = kept;
        self
    }

    /// Whether the map keeps a value that something else waits to see dropped.
    pub(crate) fn keeps_value(&self) -> bool {
        self.kept.is_some()
    }

    /// The DMA-BUF by which devices access the bytes.
    pub(crate) fn dmabuf(&self) -> Option<&DmaBuf> {
        self.dma.as_ref()
    }

    /// Whether the DMA-BUF itself is mapped, which every process that has its descriptor can write.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Keeps the mapped file open while the map exists.
    pub(crate) fn keeping_open(mut self, fd: Arc<OwnedFd>) -> Map {
        self.fd = Some(fd);
        self
    }

    /// Calls `map` so that its result is aligned to `align`.
    ///
    /// `map` gets null, or the start of at least `len` reserved bytes together with `MAP_FIXED`.
    fn map_aligned(
        len: usize,
        align: usize,
        map: impl Fn(*mut c_void, MapFlags) -> io::Result<*mut c_void>,
    ) -> io::Result<Map> {
        // A slice may not be longer, but a 32-bit process can map more.
        isize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if align <= rustix::param::page_size() {
            return Map::adopt(map(ptr::null_mut(), MapFlags::empty())?, len);
        }
        let mut space = Map::reserve(len, align)?;
        space.trim_to(len, align);
        if let Err(error) = map(space.ptr.as_ptr().cast(), MapFlags::FIXED) {
            // mmap(2), POSIX: a failed MAP_FIXED may have unmapped the range, and another thread may
            // have mapped it since. So it must not be unmapped here.
            mem::forget(space);
            return Err(error);
        }
        Ok(space)
    }

    fn adopt(ptr: *mut c_void, len: usize) -> io::Result<Map> {
        let ptr = NonNull::new(ptr.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Map { ptr, len, guard: None, fd: None, dma: None, direct: false, kept: None })
    }

    /// Reserves address space without memory, large enough for `len` bytes at a multiple of `align`.
    fn reserve(len: usize, align: usize) -> io::Result<Map> {
        let size = round_up_to_page(len)
            .and_then(|len| len.checked_add(align))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: with a null address the kernel chooses an unused range.
        let ptr = unsafe { mm::mmap_anonymous(ptr::null_mut(), size, ProtFlags::empty(), flags) }?;
        Map::adopt(ptr, size)
    }

    /// Unmaps the part before the first multiple of `align`, and the part after `len` bytes from there.
    fn trim_to(&mut self, len: usize, align: usize) {
        let whole = round_up_to_page(len).unwrap_or(len);
        let head = self.ptr.as_ptr().align_offset(align);
        let tail = self.len - head - whole;
        let start = self.ptr.as_ptr();
        // SAFETY: `reserve` added `align` bytes, so `head < align` stays inside this mapping.
        let aligned = unsafe { start.add(head) };
        // SAFETY: `head + whole <= self.len`.
        let end = unsafe { aligned.add(whole) };
        unmap(start, head);
        unmap(end, tail);
        // SAFETY: `start` was not null and `aligned` lies in the same mapping.
        self.ptr = unsafe { NonNull::new_unchecked(aligned) };
        self.len = len;
    }

    #[inline]
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Asks for huge pages.
    pub(crate) fn advise_huge(&self) -> io::Result<()> {
        self.advise(Advice::LinuxHugepage)?;
        if self.guard.is_some() { memfd::check_huge_pages() } else { Ok(()) }
    }

    /// Makes every page present now rather than at first touch.
    pub(crate) fn populate(&self) -> io::Result<()> {
        self.advise(Advice::LinuxPopulateWrite)
    }

    /// Keeps the pages in memory.
    pub(crate) fn lock(&self) -> io::Result<()> {
        // SAFETY: this map owns the range, and locking does not change its bytes.
        Ok(unsafe { mm::mlock(self.ptr.as_ptr().cast(), self.len) }?)
    }

    /// Undoes [`lock`](Map::lock).
    pub(crate) fn unlock(&self) -> io::Result<()> {
        // SAFETY: as above.
        Ok(unsafe { mm::munlock(self.ptr.as_ptr().cast(), self.len) }?)
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: this map owns the range, and no advice that this is called with changes its bytes.
        Ok(unsafe { mm::madvise(self.ptr.as_ptr().cast(), self.len, advice) }?)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // First, so that a fork finds no entry for pages that may be mapped anew by another thread.
        self.guard = None;
        unmap(self.ptr.as_ptr(), self.len);
    }
}

/// Unmaps a range that a [`Map`] owns and does not use any more.
fn unmap(ptr: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: the caller owns the pages and keeps no reference to them.
        let result = unsafe { mm::munmap(ptr.cast(), len) };
        // It fails if it splits a mapping and the process is at its limit of mappings. Then the
        // address space stays reserved, and only the pages are returned.
        if result.is_err() {
            // SAFETY: as above; no code reads the pages again.
            let _ = unsafe { mm::madvise(ptr.cast(), len, Advice::LinuxDontNeed) };
        }
    }
}

fn round_up_to_page(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(rustix::param::page_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_alignment_holds_and_the_rest_is_unmapped() {
        let align = 1 << 21;
        let map = Map::anonymous(5000, align).unwrap();
        assert_eq!(map.ptr().as_ptr().align_offset(align), 0);
        assert_eq!(map.len, 5000);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Map::anonymous(usize::MAX, 1 << 21).is_err());
        assert!(Map::anonymous(usize::MAX, 64).is_err());
    }
}
