//! A region: a range of bytes that knows how to free itself, wherever it came from.
//!
//! Above this layer nobody sees a pointer.
//!
//! # Contract
//! The bytes `ptr .. ptr + len` are initialised, and stay valid until the keeper is dropped. A region
//! is unique: `&mut Region` means that nobody else in this process looks at the bytes, which is
//! why [`Region::bytes_mut`] can exist. Bytes that another process, or foreign code, may write are
//! only made into a region under a promise that it does not (see [`Region::foreign`]).
#![allow(unsafe_code, reason = "the one place where pointers become slices")]

use std::io;
#[cfg(target_os = "linux")]
use std::ops::Range;
use std::ptr::NonNull;
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::{fmt, slice};

use bytemuck::NoUninit;

use crate::memory::heap_block::Heap;
#[cfg(target_os = "linux")]
use crate::sys::mapping::{Access, Map};

/// A range of bytes that knows how to free itself.
#[derive(Debug)]
pub(crate) struct Region {
    ptr: NonNull<u8>,
    len: usize,
    writable: bool,
    _keeper: Keeper,
}

/// Whatever keeps the bytes alive.
#[allow(dead_code, reason = "kept to be dropped, and shown when debugging")]
#[derive(Debug)]
enum Keeper {
    Heap(Heap),
    #[cfg(target_os = "linux")]
    Map(Map),
    #[cfg(target_os = "linux")]
    Part(Arc<Map>),
    Owner(Owner),
}

/// Something that owns foreign bytes and frees them when dropped.
struct Owner {
    _drop: Box<dyn Send>,
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}

/// An owner at a fixed address. A `Box` would do, were it not for the compiler's right to assume
/// that nobody holds pointers into a box that moves.
struct Lender<T>(NonNull<T>);

impl<T> Lender<T> {
    fn new(owner: T) -> Self {
        Lender(NonNull::from(Box::leak(Box::new(owner))))
    }

    fn get(&self) -> &T {
        // SAFETY: the pointer came from a box and is freed only in `drop`.
        unsafe { self.0.as_ref() }
    }

    fn get_mut(&mut self) -> &mut T {
        // SAFETY: as in `get`; `&mut self` makes it the only reference.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Lender<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::leak` and is turned back once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: a `Lender` owns its `T` as a box would.
unsafe impl<T: Send> Send for Lender<T> {}

// SAFETY: every keeper is `Send`, and the bytes are reached only through `&self` and `&mut self`.
unsafe impl Send for Region {}
// SAFETY: `&Region` gives out only `&[u8]`; the keeper is touched by nobody until it is dropped.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed bytes from the allocator.
    pub(crate) fn heap(len: usize, align: usize) -> io::Result<Region> {
        let heap = Heap::zeroed(len, align)?;
        Ok(Region { ptr: heap.ptr(), len, writable: true, _keeper: Keeper::Heap(heap) })
    }

    /// All bytes of a mapping, which was made with `access`.
    #[cfg(target_os = "linux")]
    pub(crate) fn map(map: Map, access: Access) -> Region {
        let writable = access == Access::Write;
        Region { ptr: map.ptr(), len: map.len(), writable, _keeper: Keeper::Map(map) }
    }

    /// Part of a mapping that others hold parts of as well. `None` if it is not that long.
    ///
    /// # Safety
    /// While the region lives, nobody else writes these bytes; and if `access` is to write,
    /// nobody else has a region over any of them.
    #[cfg(target_os = "linux")]
    pub(crate) unsafe fn part(
        map: Arc<Map>,
        range: Range<usize>,
        access: Access,
    ) -> Option<Region> {
        if range.start > range.end || range.end > map.len() {
            return None;
        }
        // SAFETY: `range.start` lies in the mapping or at its end.
        let ptr = unsafe { map.ptr().add(range.start) };
        let writable = access == Access::Write;
        Some(Region { ptr, len: range.len(), writable, _keeper: Keeper::Part(map) })
    }

    /// The elements of a vector, without copying them.
    pub(crate) fn vec<T: NoUninit + Send>(mut vec: Vec<T>) -> Region {
        let len = size_of_val(vec.as_slice());
        let ptr = NonNull::from(vec.as_mut_slice()).cast();
        // SAFETY: the buffer of a `Vec` stays where it is when the `Vec` moves, lives until the
        // `Vec` is dropped, and `NoUninit` elements have no uninitialised bytes. The `Vec` is not
        // touched again until then, so the pointer is the only way to the elements.
        unsafe { Region::owned(ptr, len, true, Box::new(vec)) }
    }

    /// Bytes that `owner` lends for as long as it lives. They are never written.
    pub(crate) fn lent(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Region {
        let lender = Lender::new(owner);
        let bytes = lender.get().as_ref();
        let (ptr, len) = (NonNull::from(bytes).cast(), bytes.len());
        // SAFETY: the slice is borrowed from the lender's owner, which is neither moved nor
        // touched until the lender is dropped together with the region.
        unsafe { Region::owned(ptr, len, false, Box::new(lender)) }
    }

    /// Bytes that `owner` holds and nobody else can reach. They may be written.
    pub(crate) fn handed_over(owner: impl AsMut<[u8]> + Send + 'static) -> Region {
        let mut lender = Lender::new(owner);
        let bytes = lender.get_mut().as_mut();
        let (ptr, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        // SAFETY: the slice is borrowed mutably from the lender's owner, which is neither moved
        // nor touched until the lender is dropped together with the region.
        unsafe { Region::owned(ptr, len, true, Box::new(lender)) }
    }

    /// Bytes that belong to somebody else, given back by calling `release`.
    ///
    /// # Safety
    /// Until `release` is called, `ptr .. ptr + len` is valid for reads, initialised, and not
    /// written by anybody.
    pub(crate) unsafe fn foreign(
        ptr: NonNull<u8>,
        len: usize,
        release: impl FnOnce() + Send + 'static,
    ) -> Region {
        struct Hook<F: FnOnce()>(Option<F>);
        impl<F: FnOnce()> Drop for Hook<F> {
            fn drop(&mut self) {
                if let Some(release) = self.0.take() {
                    release();
                }
            }
        }
        // SAFETY: the caller's promise holds until the hook is dropped.
        unsafe { Region::owned(ptr, len, false, Box::new(Hook(Some(release)))) }
    }

    /// # Safety
    /// `ptr .. ptr + len` is initialised and valid until `owner` is dropped, for writes too if
    /// `writable`, and nobody writes it meanwhile.
    unsafe fn owned(ptr: NonNull<u8>, len: usize, writable: bool, owner: Box<dyn Send>) -> Region {
        Region { ptr, len, writable, _keeper: Keeper::Owner(Owner { _drop: owner }) }
    }

    /// Whether the bytes may be written by whoever holds the region alone.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where the bytes begin, for those who are told what they may do there.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.ptr
    }

    /// All bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the contract of this module: initialised, valid while `self` lives, and nobody
        // has `&mut` access while `&self` is borrowed.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// All bytes, to be written; `None` where the memory must not be.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.writable.then(|| {
            // SAFETY: as in `bytes`; `writable` says that the memory may be written, and `&mut
            // self` that nobody else in this process looks at it.
            unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sync::{AtomicUsize, Ordering};

    #[test]
    fn a_vector_is_adopted_where_it_stands() {
        let vec = vec![1u32, 2, 3];
        let place = vec.as_ptr().cast::<u8>();
        let mut region = Region::vec(vec);
        assert_eq!(region.bytes().as_ptr(), place);
        region.bytes_mut().unwrap()[0] = 7;
        assert_eq!(region.bytes()[0], 7);
    }

    #[test]
    fn foreign_memory_is_released_once() {
        let calls = Arc::new(AtomicUsize::new(0));
        let data: &'static [u8] = b"static";
        let hook = calls.clone();
        // SAFETY: static bytes live forever and never change.
        let mut region = unsafe {
            Region::foreign(NonNull::from(data).cast(), data.len(), move || {
                hook.fetch_add(1, Ordering::Relaxed);
            })
        };
        assert_eq!(region.bytes(), data);
        assert!(region.bytes_mut().is_none());
        drop(region);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
