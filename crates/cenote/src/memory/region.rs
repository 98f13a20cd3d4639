//! A region: a range of bytes that frees itself, from any source.
//!
//! Code above this layer does not see pointers.
//!
//! # Contract
//! The bytes `ptr .. ptr + len` are initialised, and stay valid until the keeper is dropped. A region is unique:
//! `&mut Region` means that no other code of this process accesses the bytes, so [`Region::bytes_mut`] is sound. Bytes
//! that another process or foreign code could write become a region only under the promise that it does not (see
//! [`Region::foreign`]).
#![allow(unsafe_code, reason = "the one place where pointers become slices")]

use std::io;
#[cfg(target_os = "linux")]
use std::ops::Range;
use std::ptr::NonNull;
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::{fmt, slice};

use bytemuck::NoUninit;

use crate::memory::heap_block::HeapBlock;
#[cfg(target_os = "linux")]
use crate::sys::mapping::{Access, Map};

/// A range of bytes that frees itself.
#[derive(Debug)]
pub(crate) struct Region {
    ptr: NonNull<u8>,
    len: usize,
    writable: bool,
    _keeper: Keeper,
}

/// The value that keeps the bytes alive.
#[allow(dead_code, reason = "kept to be dropped, and shown when debugging")]
#[derive(Debug)]
enum Keeper {
    Heap(HeapBlock),
    #[cfg(target_os = "linux")]
    Map(Map),
    #[cfg(target_os = "linux")]
    Part(Arc<Map>),
    Owner(Owner),
}

/// A value that owns foreign bytes and frees them when dropped.
struct Owner {
    _drop: Box<dyn Send>,
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}

/// An owner at a fixed address. Not a `Box`, because the compiler may assume that no pointers into a box exist when it
/// moves.
struct PinnedOwner<T>(NonNull<T>);

impl<T> PinnedOwner<T> {
    fn new(owner: T) -> Self {
        PinnedOwner(NonNull::from(Box::leak(Box::new(owner))))
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

impl<T> Drop for PinnedOwner<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::leak` and becomes a box again once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: a `PinnedOwner` owns its `T`, as a box does.
unsafe impl<T: Send> Send for PinnedOwner<T> {}

// SAFETY: every keeper is `Send`, and the bytes are reached only through `&self` and `&mut self`.
unsafe impl Send for Region {}
// SAFETY: `&Region` gives access only to `&[u8]`; the keeper is not used until it is dropped.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed bytes from the allocator.
    pub(crate) fn heap(len: usize, align: usize) -> io::Result<Region> {
        let heap = HeapBlock::zeroed(len, align)?;
        Ok(Region { ptr: heap.ptr(), len, writable: true, _keeper: Keeper::Heap(heap) })
    }

    /// All bytes of a mapping, which was made with `access`.
    #[cfg(target_os = "linux")]
    pub(crate) fn map(map: Map, access: Access) -> Region {
        let writable = access == Access::Write;
        Region { ptr: map.ptr(), len: map.len(), writable, _keeper: Keeper::Map(map) }
    }

    /// A part of a mapping of which other regions may have other parts. `None` if the mapping is shorter.
    ///
    /// # Safety
    /// While the region exists, no other code writes these bytes. If `access` is to write, no other region covers any
    /// of them.
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

    /// Takes the elements of a vector without copying them.
    pub(crate) fn vec<T: NoUninit + Send>(mut vec: Vec<T>) -> Region {
        let len = size_of_val(vec.as_slice());
        let ptr = NonNull::from(vec.as_mut_slice()).cast();
        // SAFETY: the buffer of a `Vec` does not move with the `Vec`, lives until the `Vec` is dropped, and `NoUninit`
        // elements have no uninitialised bytes. The `Vec` is not used until then, so only this pointer accesses the
        // elements.
        unsafe { Region::owned(ptr, len, true, Box::new(vec)) }
    }

    /// The bytes of `owner`, which the region keeps alive. They are never written.
    pub(crate) fn read_only(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Region {
        let pinned = PinnedOwner::new(owner);
        let bytes = pinned.get().as_ref();
        let (ptr, len) = (NonNull::from(bytes).cast(), bytes.len());
        // SAFETY: the slice is borrowed from the pinned owner, which is neither moved nor used until it is dropped
        // together with the region.
        unsafe { Region::owned(ptr, len, false, Box::new(pinned)) }
    }

    /// The bytes of `owner`, which only this region accesses. They may be written.
    pub(crate) fn writable(owner: impl AsMut<[u8]> + Send + 'static) -> Region {
        let mut pinned = PinnedOwner::new(owner);
        let bytes = pinned.get_mut().as_mut();
        let (ptr, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        // SAFETY: the slice is borrowed mutably from the pinned owner, which is neither moved nor used until it is
        // dropped together with the region.
        unsafe { Region::owned(ptr, len, true, Box::new(pinned)) }
    }

    /// Bytes of foreign code. The region calls `release` when it is dropped.
    ///
    /// # Safety
    /// Until `release` is called, `ptr .. ptr + len` is valid for reads and initialised, and no code writes it.
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
    /// `ptr .. ptr + len` is initialised and valid until `owner` is dropped, for writes too if `writable`, and no other
    /// code writes it until then.
    unsafe fn owned(ptr: NonNull<u8>, len: usize, writable: bool, owner: Box<dyn Send>) -> Region {
        Region { ptr, len, writable, _keeper: Keeper::Owner(Owner { _drop: owner }) }
    }

    /// Whether the sole holder of the region may write the bytes.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of the first byte.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.ptr
    }

    /// All bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the contract of this module: initialised, valid while `self` exists, and no code has `&mut` access
        // while `&self` is borrowed.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// All bytes, for writing; `None` if the memory must not be written.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.writable.then(|| {
            // SAFETY: as in `bytes`; `writable` says that the memory may be written, and `&mut self` that no other code
            // of this process accesses it.
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
    fn a_vector_is_adopted_without_moving_its_elements() {
        let vec = vec![1u32, 2, 3];
        let address = vec.as_ptr().cast::<u8>();
        let mut region = Region::vec(vec);
        assert_eq!(region.bytes().as_ptr(), address);
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
