//! Buffers of elements.
//!
//! Contract: of a [`Buffer`], the first `len` elements are initialised and valid, and `len` elements
//! fit its block. An [`UninitBuffer`] has room for `len` elements. Both own their block alone, so
//! the borrow rules of the handle are those of its bytes. Whoever can write through a handle has
//! noted so in the block first (`soil`). Both are made here only, of blocks that were acquired for
//! just this: the store hands out at least as many bytes as it is asked for, filled as it is asked.

#![allow(unsafe_code, reason = "looks at bytes as elements")]

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use bytemuck::{CheckedBitPattern, Zeroable};

use super::block::{Block, Fill};
use super::class::Fit;
use super::given_back::GivenBack;
use super::memory::Extras;
use super::pool::BufferPool;
use super::raw::RawBuffer;
use super::store::{Store, too_large};
use crate::error::{Error, Result};
use crate::tensor::{Tensor, options::check_len};
use crate::types::dtype::Element;
use crate::types::layout::Layout;

/// Room for elements that were not written yet.
///
/// Looks like a slice of [`MaybeUninit`]. Filling it makes it a [`Buffer`].
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
fn block_for<T: Element>(store: &Arc<Store>, len: usize, fill: Fill) -> Result<RawBuffer> {
    let bytes = len
        .checked_mul(size_of::<T>())
        .ok_or_else(|| Error::SizeOverflow { shape: [len].into(), item_size: size_of::<T>() })?;
    store.acquire(bytes, fill)
}

impl<T: Element> UninitBuffer<T> {
    #[inline]
    pub(super) fn acquire(store: &Arc<Store>, len: usize) -> Result<Self> {
        let raw = block_for::<T>(store, len, Fill::Uninit)?;
        debug_assert!(len * size_of::<T>() <= raw.capacity());
        Ok(UninitBuffer { raw, len, elements: PhantomData })
    }

    /// Copies `values`, of which there must be as many as there is room for.
    pub fn write_slice(mut self, values: &[T]) -> Result<Buffer<T>, GivenBack<Self>> {
        if values.len() != self.len {
            let (shape, expected, given) = ([self.len].into(), self.len, values.len());
            let error = Error::WrongLen { shape, expected, given };
            return Err(GivenBack::new(self, error));
        }
        self.copy_from_slice(as_uninit(values));
        // SAFETY: as many elements as there is room for were copied.
        Ok(unsafe { self.assume_init() })
    }

    /// Sets each element to what `value` returns for its index.
    pub fn write_fn(mut self, mut value: impl FnMut(usize) -> T) -> Buffer<T> {
        for (index, room) in self.iter_mut().enumerate() {
            room.write(value(index));
        }
        // SAFETY: the loop wrote all of them.
        unsafe { self.assume_init() }
    }

    /// Lets `write` fill the room. It returns the part that it wrote, which must start at the first
    /// element; the buffer then has that many.
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
    pub fn write_with<F>(mut self, write: F) -> Result<Buffer<T>, GivenBack<Self>>
    where
        F: for<'a> FnOnce(&'a mut [MaybeUninit<T>]) -> &'a mut [T],
    {
        let start = self.as_ptr().cast::<T>();
        let room = self.len;
        let written = write(&mut self);
        let is_prefix = written.as_ptr() == start && written.len() <= room;
        if !is_prefix && !written.is_empty() {
            return Err(GivenBack::new(self, Error::NotThePrefix));
        }
        // Nothing at all needs no writing. And a `&mut [T]` to these very elements cannot exist
        // unless they are initialised: the buffer was lent to `write` alone.
        self.len = written.len();
        // SAFETY: as just said, `written` covers the first `len` elements.
        Ok(unsafe { self.assume_init() })
    }

    /// Declares that all elements are written.
    ///
    /// # Safety
    ///
    /// They are.
    pub unsafe fn assume_init(mut self) -> Buffer<T> {
        self.raw.soil(self.len * size_of::<T>());
        Buffer { raw: self.raw, len: self.len, elements: PhantomData }
    }

    /// The same room with nothing in it, to push to.
    #[inline]
    pub(super) fn into_empty(self) -> Buffer<T> {
        Buffer { raw: self.raw, len: 0, elements: PhantomData }
    }
}

impl<T: Element> Deref for UninitBuffer<T> {
    type Target = [MaybeUninit<T>];

    fn deref(&self) -> &[MaybeUninit<T>] {
        // SAFETY: the block is aligned to 64 bytes, has room for `len` elements, and is ours;
        // `MaybeUninit` asks nothing of its bytes.
        unsafe { slice::from_raw_parts(self.raw.start().as_ptr().cast(), self.len) }
    }
}

impl<T: Element> DerefMut for UninitBuffer<T> {
    fn deref_mut(&mut self) -> &mut [MaybeUninit<T>] {
        self.raw.soil(self.len * size_of::<T>());
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

/// Elements in memory of a [`BufferPool`], which gets it back when the buffer is dropped, on
/// whatever thread that is.
///
/// A slice of its elements, and a vector that cannot outgrow its [`capacity`](Buffer::capacity).
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

/// Initialised elements are one of the things that uninitialised ones may be.
fn as_uninit<T: Element>(values: &[T]) -> &[MaybeUninit<T>] {
    // SAFETY: `MaybeUninit<T>` has the layout of `T` and asks nothing of its bytes, and a shared
    // slice of it cannot be written.
    unsafe { slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
}

impl Buffer<u8> {
    /// Bytes with any values, or zeros, for a handle that knows its dtype at run time.
    pub(super) fn acquire_bytes(store: &Arc<Store>, len: usize, zeroed: bool) -> Result<Self> {
        let fill = if zeroed { Fill::Zero } else { Fill::Stale };
        // Every byte is a valid `u8`, and these were all written at some time.
        Ok(Buffer { raw: block_for::<u8>(store, len, fill)?, len, elements: PhantomData })
    }

    /// The first byte, for code that writes by pointer. Whoever writes has borrowed the buffer
    /// mutably once before.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.raw.start()
    }

    /// Zero bytes in memory that is no pool's. There is at least one.
    pub(super) fn without_pool(len: usize) -> Result<Self> {
        let fit = Fit::new(len).ok_or_else(|| too_large(len))?;
        let (block, _) = Block::new(fit, Extras::default())?;
        Ok(Buffer { raw: RawBuffer::new(block), len, elements: PhantomData })
    }
}

impl<T: Element> Buffer<T> {
    pub(super) fn acquire_zeroed(store: &Arc<Store>, len: usize) -> Result<Self> {
        if T::is_valid_bit_pattern(&<T as CheckedBitPattern>::Bits::zeroed()) {
            let raw = block_for::<T>(store, len, Fill::Zero)?;
            return Ok(Buffer { raw, len, elements: PhantomData });
        }
        Ok(UninitBuffer::acquire(store, len)?.write_fn(|_| T::default()))
    }

    /// Locks its pages in memory, if no other block has a share in them; true if that worked.
    pub(super) fn pin(&self) -> bool {
        self.raw.pin()
    }

    /// Undoes [`pin`](Buffer::pin).
    pub(super) fn unpin(&self) {
        self.raw.unpin();
    }

    /// A copy of `values` in memory of `pool`.
    ///
    /// ```
    /// use cenote::{Buffer, BufferPool};
    /// let pool = BufferPool::unbounded();
    /// let mask = Buffer::from_slice(&pool, &[true, false])?;
    /// assert_eq!(*mask, [true, false]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn from_slice(pool: &BufferPool, values: &[T]) -> Result<Self> {
        Ok(pool.acquire(values.len())?.write_slice(values)?)
    }

    /// `len` elements in memory of `pool`, each what `value` returns for its index.
    pub fn from_fn(pool: &BufferPool, len: usize, value: impl FnMut(usize) -> T) -> Result<Self> {
        Ok(pool.acquire(len)?.write_fn(value))
    }

    /// Elements that there is room for.
    pub fn capacity(&self) -> usize {
        self.raw.capacity() / size_of::<T>()
    }

    /// Appends an element, or gives it back if there is no room.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let Some(room) = self.spare(1) else { return Err(value) };
        room[0].write(value);
        self.len += 1;
        Ok(())
    }

    /// Appends elements: all of them, or none if there is no room.
    pub fn extend_from_slice(&mut self, values: &[T]) -> Result<()> {
        let (capacity, needed) = (self.capacity(), self.len + values.len());
        let room = self.spare(values.len()).ok_or(Error::BufferFull { capacity, needed })?;
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

    /// The next `count` places behind the elements, if there are so many.
    fn spare(&mut self, count: usize) -> Option<&mut [MaybeUninit<T>]> {
        let needed = self.len.checked_add(count).filter(|&sum| sum <= self.capacity())?;
        self.raw.soil(needed * size_of::<T>());
        // SAFETY: `len` elements fit the block.
        let start = unsafe { self.raw.start().cast::<MaybeUninit<T>>().add(self.len) };
        // SAFETY: `len + count` elements fit too; the block is aligned and ours alone. The callers
        // write elements only, so initialised bytes stay initialised.
        Some(unsafe { slice::from_raw_parts_mut(start.as_ptr(), count) })
    }

    /// Makes a tensor of it without copying. Its memory returns to the pool with the last handle of
    /// the tensor; [`detach`](Buffer::detach) it first to take it out for good.
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
    pub fn into_tensor(self, shape: &[usize]) -> Result<Tensor, GivenBack<Self>> {
        match self.layout(shape) {
            Ok(layout) => Tensor::from_buffer(Bytes(self), layout, T::DTYPE)
                .map_err(|(Bytes(buffer), error)| GivenBack::new(buffer, error)),
            Err(error) => Err(GivenBack::new(self, error)),
        }
    }

    /// The layout of a tensor of this shape, if it has as many elements.
    fn layout(&self, shape: &[usize]) -> Result<Layout> {
        let layout = Layout::contiguous(shape, size_of::<T>())?;
        check_len(&layout, self.len)?;
        Ok(layout)
    }

    /// Takes the memory out of its pool: it is freed, not retained, when the buffer is dropped.
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
        // SAFETY: the block is aligned to 64 bytes and ours, and its first `len` elements are
        // initialised and valid.
        unsafe { slice::from_raw_parts(self.raw.start().as_ptr().cast(), self.len) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.raw.soil(self.len * size_of::<T>());
        // SAFETY: as in `deref`; `&mut self` makes it exclusive.
        unsafe { slice::from_raw_parts_mut(self.raw.start().as_ptr().cast(), self.len) }
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The elements of a buffer as bytes, for a tensor. Nobody looks at the buffer itself any more, so
/// they may become bytes that are not valid elements.
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
