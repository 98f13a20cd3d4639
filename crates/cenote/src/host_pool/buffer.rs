//! Typed buffers.
//!
//! Contract: the first `len` elements of a [`Buffer`] are initialised and valid, and `len` elements
//! fit its block. An [`UninitBuffer`] has room for `len` elements. Each is the only owner of its
//! block, so borrows of the handle are borrows of the bytes. A method that gives write access records
//! it in the raw buffer first (`mark_written`). Only this file makes these types, from blocks that the store
//! returned for this purpose: it returns at least the requested bytes, filled as requested.

#![allow(unsafe_code, reason = "accesses bytes as elements")]

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use bytemuck::{CheckedBitPattern, Zeroable};

use super::rejected::Rejected;
use super::retain::{Block, Extras, Fill, Fit, RawBuffer, Store, too_large};
use crate::error::{Error, Result};
use crate::tensor::tensor::{Tensor, check_len};
use crate::types::dtype::Element;
use crate::types::layout::Layout;

/// Memory of a [`BufferPool`](super::BufferPool) for elements that are not initialised yet.
///
/// Dereferences to a slice of [`MaybeUninit`]. Its `write` methods turn it into a [`Buffer`].
///
/// ```
/// # let pool = cenote::BufferPool::unbounded();
/// let room = pool.acquire::<f32>(3)?;
/// let squares = room.write_fn(|i| (i * i) as f32);
/// assert_eq!(*squares, [0.0, 1.0, 4.0]);
/// # Ok::<(), cenote::Error>(())
/// ```
pub struct UninitBuffer<T: Element> {
    raw: RawBuffer,
    len: usize,
    elements: PhantomData<T>,
}

/// A block for `len` elements.
#[inline]
fn block_for<T: Element>(store: &Store, len: usize, fill: Fill) -> Result<RawBuffer> {
    let bytes = len
        .checked_mul(size_of::<T>())
        .ok_or_else(|| Error::SizeOverflow { shape: [len].into(), item_size: size_of::<T>() })?;
    store.acquire(bytes, fill)
}

impl<T: Element> UninitBuffer<T> {
    #[inline]
    pub(super) fn acquire(store: &Store, len: usize) -> Result<Self> {
        let raw = block_for::<T>(store, len, Fill::Uninit)?;
        debug_assert!(len * size_of::<T>() <= raw.capacity());
        Ok(UninitBuffer { raw, len, elements: PhantomData })
    }

    /// Copies `values`. Fails if their number is not the length of this buffer.
    pub fn write_slice(mut self, values: &[T]) -> Result<Buffer<T>, Rejected<Self>> {
        if values.len() != self.len {
            let (shape, expected, given) = ([self.len].into(), self.len, values.len());
            let error = Error::WrongLen { shape, expected, given };
            return Err(Rejected::new(self, error));
        }
        self.copy_from_slice(as_uninit(values));
        // SAFETY: `copy_from_slice` wrote all `len` elements.
        Ok(unsafe { self.assume_init() })
    }

    /// Sets each element to the return value of `value` for its index.
    pub fn write_fn(mut self, mut value: impl FnMut(usize) -> T) -> Buffer<T> {
        for (index, room) in self.iter_mut().enumerate() {
            room.write(value(index));
        }
        // SAFETY: the loop wrote all `len` elements.
        unsafe { self.assume_init() }
    }

    /// Calls `write` to fill the memory. It returns the part that it wrote, which becomes the buffer.
    /// Fails if that part does not start at the first element.
    ///
    /// ```
    /// use std::mem::MaybeUninit;
    ///
    /// /// A kernel that writes its output without reading it.
    /// fn ones(out: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    ///     for x in &mut *out {
    ///         x.write(1.0);
    ///     }
    ///     // SAFETY: all of them were written.
    ///     unsafe { &mut *(out as *mut [MaybeUninit<f32>] as *mut [f32]) }
    /// }
    /// # let pool = cenote::BufferPool::unbounded();
    /// let buffer = pool.acquire(4)?.write_with(ones)?;
    /// assert_eq!(*buffer, [1.0; 4]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn write_with<F>(mut self, write: F) -> Result<Buffer<T>, Rejected<Self>>
    where
        F: for<'a> FnOnce(&'a mut [MaybeUninit<T>]) -> &'a mut [T],
    {
        let start = self.as_ptr().cast::<T>();
        let room = self.len;
        let written = write(&mut self);
        let is_prefix = written.as_ptr() == start && written.len() <= room;
        if !is_prefix && !written.is_empty() {
            return Err(Rejected::new(self, Error::NotThePrefix));
        }
        // An empty part needs no writes. A `&mut [T]` to these elements exists only if they are
        // initialised: nothing but `write` had access to the buffer.
        self.len = written.len();
        // SAFETY: `written` covers the first `len` elements, and they are initialised, see above.
        Ok(unsafe { self.assume_init() })
    }

    /// Turns it into a buffer without a write.
    ///
    /// # Safety
    ///
    /// All elements are initialised.
    pub unsafe fn assume_init(mut self) -> Buffer<T> {
        self.raw.mark_written(self.len * size_of::<T>());
        Buffer { raw: self.raw, len: self.len, elements: PhantomData }
    }

    /// The same memory as an empty buffer.
    #[inline]
    pub(super) fn into_empty(self) -> Buffer<T> {
        Buffer { raw: self.raw, len: 0, elements: PhantomData }
    }
}

impl<T: Element> Deref for UninitBuffer<T> {
    type Target = [MaybeUninit<T>];

    fn deref(&self) -> &[MaybeUninit<T>] {
        // SAFETY: the block is aligned to 64 bytes, has room for `len` elements, and has no other
        // owner; `MaybeUninit` allows any bytes.
        unsafe { slice::from_raw_parts(self.raw.start().as_ptr().cast(), self.len) }
    }
}

impl<T: Element> DerefMut for UninitBuffer<T> {
    fn deref_mut(&mut self) -> &mut [MaybeUninit<T>] {
        self.raw.mark_written(self.len * size_of::<T>());
        self.raw.forget_init();
        // SAFETY: as in `deref`; `&mut self` makes it exclusive.
        unsafe { slice::from_raw_parts_mut(self.raw.start().as_ptr().cast(), self.len) }
    }
}

impl<T: Element> fmt::Debug for UninitBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UninitBuffer<{}>({})", T::DTYPE, self.len)
    }
}

/// Elements in memory of a [`BufferPool`](super::BufferPool), which returns to the pool when the buffer is dropped, on
/// any thread.
///
/// Dereferences to a slice of its elements. Elements can be appended up to its
/// [`capacity`](Buffer::capacity).
///
/// ```
/// # let pool = cenote::BufferPool::unbounded();
/// let mut buffer = pool.acquire_with_capacity::<u16>(2)?;
/// buffer.push(7).unwrap();
/// buffer[0] += 1;
/// assert_eq!(*buffer, [8]);
/// # Ok::<(), cenote::Error>(())
/// ```
pub struct Buffer<T: Element> {
    raw: RawBuffer,
    len: usize,
    elements: PhantomData<T>,
}

/// The same elements as `MaybeUninit`.
fn as_uninit<T: Element>(values: &[T]) -> &[MaybeUninit<T>] {
    // SAFETY: `MaybeUninit<T>` has the layout of `T` and allows any bytes, and a shared slice of it
    // cannot be written.
    unsafe { slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
}

impl Buffer<u8> {
    /// Bytes with any values, or zeros.
    pub(super) fn acquire_bytes(store: &Store, len: usize, zeroed: bool) -> Result<Self> {
        let fill = if zeroed { Fill::Zero } else { Fill::Stale };
        // Every initialised byte is a valid `u8`, and both fills initialise all bytes.
        Ok(Buffer { raw: block_for::<u8>(store, len, fill)?, len, elements: PhantomData })
    }

    /// The first byte, for code that writes by pointer. Before it writes the buffer must have been
    /// borrowed mutably once, which records the writes.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.raw.start()
    }

    /// `len` zeros, at least 1, in memory that belongs to no pool.
    pub(super) fn without_pool(len: usize) -> Result<Self> {
        let fit = Fit::new(len).ok_or_else(|| too_large(len))?;
        let (block, _) = Block::new(fit, Extras::default())?;
        Ok(Buffer { raw: RawBuffer::new(block), len, elements: PhantomData })
    }
}

impl<T: Element> Buffer<T> {
    pub(super) fn acquire_zeroed(store: &Store, len: usize) -> Result<Self> {
        if T::is_valid_bit_pattern(&<T as CheckedBitPattern>::Bits::zeroed()) {
            let raw = block_for::<T>(store, len, Fill::Zero)?;
            return Ok(Buffer { raw, len, elements: PhantomData });
        }
        Ok(UninitBuffer::acquire(store, len)?.write_fn(|_| T::default()))
    }

    /// Locks its pages in memory, if it shares them with no other block. Returns whether it did.
    pub(super) fn pin(&self) -> bool {
        self.raw.pin()
    }

    /// Undoes [`pin`](Buffer::pin).
    pub(super) fn unpin(&self) {
        self.raw.unpin();
    }

    /// The number of elements that fit its memory.
    pub fn capacity(&self) -> usize {
        self.raw.capacity() / size_of::<T>()
    }

    /// Appends an element. Returns it as the error if the buffer is full.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let Some(room) = self.unused(1) else { return Err(value) };
        room[0].write(value);
        self.len += 1;
        Ok(())
    }

    /// Appends all elements, or none and an error if they do not fit.
    pub fn extend_from_slice(&mut self, values: &[T]) -> Result<()> {
        let (capacity, needed) = (self.capacity(), self.len + values.len());
        let room = self.unused(values.len()).ok_or(Error::BufferFull { capacity, needed })?;
        room.copy_from_slice(as_uninit(values));
        self.len = needed;
        Ok(())
    }

    /// Shortens it to `len` elements, if it has more.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The memory of the next `count` elements after the last one, if they fit.
    fn unused(&mut self, count: usize) -> Option<&mut [MaybeUninit<T>]> {
        let needed = self.len.checked_add(count).filter(|&sum| sum <= self.capacity())?;
        self.raw.mark_written(needed * size_of::<T>());
        // SAFETY: `len` elements fit the block.
        let start = unsafe { self.raw.start().cast::<MaybeUninit<T>>().add(self.len) };
        // SAFETY: `len + count` elements fit too; the block is aligned and has no other owner. The
        // callers write elements only, so initialised bytes stay initialised.
        Some(unsafe { slice::from_raw_parts_mut(start.as_ptr(), count) })
    }

    /// Turns it into a tensor without a copy. Fails if `shape` has another number of elements. The
    /// memory returns to the pool when the last handle of the tensor is dropped, unless the buffer
    /// was [detached](Buffer::detach).
    ///
    /// ```
    /// use cenote::{Buffer, BufferPool};
    /// let pool = BufferPool::unbounded();
    /// let tensor = Buffer::from_slice(&pool, &[1, 2, 3, 4, 5, 6_i32])?.into_tensor(&[2, 3])?;
    /// assert_eq!(tensor.to_vec::<i32>()?, [1, 2, 3, 4, 5, 6]);
    /// drop(tensor);
    /// assert_eq!(pool.len(), 1);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn into_tensor(self, shape: &[usize]) -> Result<Tensor, Rejected<Self>> {
        match self.layout(shape) {
            Ok(layout) => Tensor::from_buffer(Bytes(self), layout, T::DTYPE)
                .map_err(|(Bytes(buffer), error)| Rejected::new(buffer, error)),
            Err(error) => Err(Rejected::new(self, error)),
        }
    }

    /// The layout of a tensor of this shape. Fails if it has another number of elements.
    fn layout(&self, shape: &[usize]) -> Result<Layout> {
        let layout = Layout::contiguous(shape, size_of::<T>())?;
        check_len(&layout, self.len)?;
        Ok(layout)
    }

    /// Removes the memory from its pool: it is freed, not retained, when the buffer is dropped.
    #[must_use = "dropping it frees the memory"]
    pub fn detach(mut self) -> Self {
        self.raw.detach();
        self
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the block is aligned to 64 bytes and has no other owner, and its first `len` elements
        // are initialised and valid.
        unsafe { slice::from_raw_parts(self.raw.start().as_ptr().cast(), self.len) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.raw.mark_written(self.len * size_of::<T>());
        // SAFETY: as in `deref`; `&mut self` makes it exclusive.
        unsafe { slice::from_raw_parts_mut(self.raw.start().as_ptr().cast(), self.len) }
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The elements of a buffer as bytes, for a tensor. The elements are not accessed any more, so their
/// bytes may become invalid elements.
struct Bytes<T: Element>(Buffer<T>);

impl<T: Element> AsMut<[u8]> for Bytes<T> {
    fn as_mut(&mut self) -> &mut [u8] {
        let elements = &mut *self.0;
        let len = size_of_val(elements);
        // SAFETY: elements are `NoUninit`: all their bytes are initialised. They are borrowed
        // mutably, and never read as elements again, see above.
        unsafe { slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), len) }
    }
}
