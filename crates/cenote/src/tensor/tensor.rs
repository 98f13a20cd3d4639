//! The handle: a buffer, a layout over it, and what its elements are.
//!
//! A [`Tensor`] is like an `Arc`: cloning it is cheap, and clones and views share one buffer. The
//! rule of sharing is that of `Arc::get_mut`: bytes can be written by the sole holder of memory
//! that never left this process, and by nobody else.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::tensor::buffer::BufferIdentity;
use crate::tensor::map::{Shown, TensorMap, TensorMapMut};
use crate::tensor::options::{TensorOptions, check_len};

use crate::error::{Error, NotWritable, Result};
use crate::memory::kind::TensorMemory;
use crate::memory::region::Region;
use crate::memory::selection::{Origin, Selection};
use crate::memory::storage::{Protection, Storage};
use crate::tensor::buffer::handle::Handle;
use crate::types::device::Device;
use crate::types::dtype::{DType, Element};
use crate::types::layout::Layout;
use crate::types::pixel_format::PixelFormat;

/// An array of elements of one type, in memory of any kind.
///
/// ```
/// use cenote::{DType, Tensor};
///
/// let mut image = Tensor::new(&[1080, 1920, 3], DType::U8)?;
/// image.map_mut()?.as_mut_slice::<u8>()?.fill(128);
///
/// let corner = image.roi(0, 0, 64, 64)?; // a view: no copy
/// assert_eq!(corner.map()?.get::<u8>(&[63, 63, 2])?, 128);
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    pub(crate) buffer: Handle,
    /// Lies inside the buffer: checked whenever it changes.
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    pub(crate) format: Option<PixelFormat>,
    /// Planes 1.. of an image whose planes do not follow each other in one buffer.
    pub(crate) far_planes: Option<Arc<Vec<Tensor>>>,
}

impl Tensor {
    /// Allocates a tensor of zeros in the best memory that can be had: DMA-BUF, else shared
    /// memory, else the heap. [`selection`](Tensor::selection) tells what was tried.
    ///
    /// Use [`TensorOptions`] to ask for one kind.
    ///
    /// A dimension of length zero, more than [`MAX_DIMS`](crate::MAX_DIMS) of them, or a size that
    /// overflows is an error. An empty shape is a scalar.
    pub fn new(shape: &[usize], dtype: DType) -> Result<Tensor> {
        TensorOptions::new().create(shape, dtype)
    }

    /// The same as [`TensorOptions::new`].
    pub fn options() -> TensorOptions {
        TensorOptions::new()
    }

    /// Allocates a black image of the shape and row stride that `format` needs.
    ///
    /// ```
    /// use cenote::{PixelFormat, Tensor};
    ///
    /// let frame = Tensor::image(1920, 1080, PixelFormat::Nv12)?;
    /// assert_eq!(frame.shape(), [1620, 1920]);
    /// assert_eq!(frame.plane(1)?.shape(), [540, 960, 2]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn image(width: usize, height: usize, format: PixelFormat) -> Result<Tensor> {
        TensorOptions::new().image(width, height, format)
    }

    /// Allocates a tensor, chosen like [`Tensor::new`], with a copy of `data` in row-major order.
    ///
    /// ```
    /// use cenote::Tensor;
    ///
    /// let tensor = Tensor::from_slice(&[1i16, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(tensor.map()?.get::<i16>(&[1, 0])?, 4);
    /// assert!(Tensor::from_slice(&[1i16, 2, 3], &[2, 3]).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn from_slice<T: Element>(data: &[T], shape: &[usize]) -> Result<Tensor> {
        TensorOptions::new().create_from_slice(data, shape)
    }

    /// Makes a heap tensor of a vector, in row-major order, without copying it. It can be written,
    /// but like all heap memory not be sent; [`from_slice`](Tensor::from_slice) copies it into
    /// memory that can.
    pub fn from_vec<T: Element>(data: Vec<T>, shape: &[usize]) -> Result<Tensor> {
        let layout = Layout::contiguous(shape, T::DTYPE.size())?;
        check_len(&layout, data.len())?;
        Tensor::adopt(Region::vec(data), layout, T::DTYPE)
    }

    /// Makes a read-only tensor of bytes that `owner` holds. `owner` is dropped with the last
    /// handle.
    ///
    /// ```
    /// use cenote::{DType, Tensor};
    /// use std::sync::Arc;
    ///
    /// let bytes: Arc<[u8]> = Arc::from([1u8, 2, 3, 4]);
    /// let tensor = Tensor::from_owner(bytes, &[2, 2], DType::U8)?;
    /// assert_eq!(tensor.to_vec::<u8>()?, [1, 2, 3, 4]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn from_owner(
        owner: impl AsRef<[u8]> + Send + Sync + 'static,
        shape: &[usize],
        dtype: DType,
    ) -> Result<Tensor> {
        let layout = Layout::contiguous(shape, dtype.size())?;
        Tensor::adopt(Region::lent(owner), layout, dtype)
    }

    /// Makes a tensor of bytes that `owner` alone can reach, and drops it with the last handle.
    pub(crate) fn from_buffer<O: AsMut<[u8]> + Send + 'static>(
        mut owner: O,
        layout: Layout,
        dtype: DType,
    ) -> Result<Tensor, (O, Error)> {
        if let Err(error) = Tensor::check(&layout, dtype, owner.as_mut().len()) {
            return Err((owner, error));
        }
        let selection = Selection::given(TensorMemory::Mem, Origin::Adopted);
        let storage = Storage::heap(Region::handed_over(owner), None);
        Ok(Tensor::of(Handle::new(storage, selection), layout, dtype))
    }

    /// Makes a read-only tensor of memory that somebody else owns, and calls `release` when the
    /// last handle is gone. If this fails, `release` is called before it returns.
    ///
    /// [`from_owner`](Tensor::from_owner) does the same in safe code, for owners that can lend a
    /// slice.
    ///
    /// # Safety
    /// Until `release` is called, the `len` bytes at `ptr` are valid for reads, initialised, and
    /// not written by anybody.
    #[allow(unsafe_code, reason = "foreign memory cannot be checked")]
    pub unsafe fn from_raw_parts(
        ptr: NonNull<u8>,
        len: usize,
        layout: Layout,
        dtype: DType,
        release: impl FnOnce() + Send + 'static,
    ) -> Result<Tensor> {
        // SAFETY: the caller's promise, word for word.
        let region = unsafe { Region::foreign(ptr, len, release) };
        Tensor::adopt(region, layout, dtype)
    }

    /// The same for memory that its owner, or others, may go on writing, as with an array of another
    /// language. What is read then is whatever is there; `bool` elements cannot be had as a slice.
    ///
    /// # Safety
    /// Until `release` is called, the `len` bytes at `ptr` are valid for reads and initialised, and
    /// nobody writes them while they are [mapped](Tensor::map) or copied.
    #[allow(unsafe_code, reason = "foreign memory cannot be checked")]
    pub unsafe fn from_changeable_parts(
        ptr: NonNull<u8>,
        len: usize,
        layout: Layout,
        dtype: DType,
        release: impl FnOnce() + Send + 'static,
    ) -> Result<Tensor> {
        // SAFETY: the caller's promise; what is more, nobody relies on values staying what they are.
        let region = unsafe { Region::foreign(ptr, len, release) };
        let selection = Selection::given(TensorMemory::Mem, Origin::Adopted);
        let storage = Storage { stable: false, ..Storage::heap(region, None) };
        Tensor::over(Handle::new(storage, selection), layout, dtype)
    }

    fn adopt(region: Region, layout: Layout, dtype: DType) -> Result<Tensor> {
        let selection = Selection::given(TensorMemory::Mem, Origin::Adopted);
        Tensor::over(Handle::new(Storage::heap(region, None), selection), layout, dtype)
    }

    /// Tensors are made here: the layout is checked against dtype and buffer.
    #[inline]
    pub(crate) fn over(buffer: Handle, layout: Layout, dtype: DType) -> Result<Tensor> {
        Tensor::check(&layout, dtype, buffer.storage().len())?;
        Ok(Tensor::of(buffer, layout, dtype))
    }

    /// Whether a layout fits the dtype, and a buffer of `len` bytes.
    #[inline]
    fn check(layout: &Layout, dtype: DType, len: usize) -> Result<()> {
        if layout.item_size() != dtype.size() {
            return Err(Error::ItemSize {
                layout: layout.item_size(),
                dtype: dtype.name(),
                size: dtype.size(),
            });
        }
        layout.fits(len)
    }

    /// For those who have checked that the layout is the dtype's and lies in the buffer.
    #[inline]
    pub(crate) fn of(buffer: Handle, layout: Layout, dtype: DType) -> Tensor {
        Tensor { buffer, layout, dtype, device: Device::cpu(), format: None, far_planes: None }
    }

    /// A tensor as a descriptor tells of it, whose offset is from the start of the segment.
    #[cfg(target_os = "linux")]
    pub(crate) fn described(
        buffer: Handle,
        (layout, dtype, format, device): (Layout, DType, Option<PixelFormat>, Device),
    ) -> Result<Tensor> {
        let outside = || Error::BadMessage { what: "a tensor outside its slot" };
        let start = buffer.slot_ref().map_or(0, |slot_ref| slot_ref.slot.offset);
        let offset = layout.offset().checked_sub(start).ok_or_else(outside)?;
        let layout = layout.with_offset(offset)?;
        let tensor = Tensor::over(buffer, layout, dtype)?.with_device(device);
        match format {
            Some(format) => tensor.with_format(format),
            None => Ok(tensor),
        }
    }

    /// The length of each dimension.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The distance in bytes from one element to the next, for each dimension. Zero and negative
    /// ones are possible.
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// Shape, strides and place in the buffer.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.layout.ndim()
    }

    /// The number of elements. Never zero.
    #[allow(clippy::len_without_is_empty, reason = "a tensor is never empty")]
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// The number of bytes in its elements, without padding between them.
    pub fn nbytes(&self) -> usize {
        self.layout.nbytes()
    }

    /// What its elements are.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device it is meant for. A tag: the bytes are where [`memory`](Tensor::memory) says.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Tags it with a device.
    #[must_use]
    pub fn with_device(mut self, device: Device) -> Tensor {
        self.device = device;
        self
    }

    /// The kind of memory it lives in.
    #[inline]
    pub fn memory(&self) -> TensorMemory {
        self.buffer.storage().memory
    }

    /// How it came to live there: what was tried, and what was passed over and why.
    pub fn selection(&self) -> &Selection {
        self.buffer.selection()
    }

    /// A key for its buffer, the same for all clones and views: for caches of what was made from
    /// it, such as device handles.
    pub fn buffer_identity(&self) -> &BufferIdentity {
        self.buffer.identity()
    }

    /// What keeps other processes from writing the bytes, once they have them.
    ///
    /// ```
    /// use cenote::{DType, Protection, Tensor, TensorMemory};
    ///
    /// let shared = Tensor::options().memory(TensorMemory::Shm).create(&[4], DType::U8)?;
    /// assert_eq!(shared.protection(), Protection::Kernel);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn protection(&self) -> Protection {
        self.buffer.protection()
    }

    /// Why [`map_mut`](Tensor::map_mut) would refuse now, or `None` if it would not.
    pub fn not_writable(&self) -> Option<NotWritable> {
        self.buffer.not_writable()
    }

    /// Makes the elements accessible for reading.
    ///
    /// On heap and shared memory this is no system call and takes nanoseconds. The bytes of a DMA-BUF
    /// are mapped all the time; two system calls, here and when the guard is dropped, tell the kernel
    /// that the CPU looks at them, so that it sees what devices wrote. An OpenGL buffer is waited for
    /// until the GPU has done what it was told to.
    ///
    /// ```
    /// use cenote::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1u8, 2, 3, 4], &[2, 2])?;
    /// let map = tensor.map()?;
    /// assert_eq!(map.as_slice::<u8>()?, [1, 2, 3, 4]);
    /// assert_eq!(map.get::<u8>(&[1, 0])?, 3);
    /// assert!(map.as_slice::<f32>().is_err()); // it holds u8
    /// # Ok::<(), cenote::Error>(())
    /// ```
    #[inline]
    pub fn map(&self) -> Result<TensorMap<'_>> {
        let (bytes, _access) = self.buffer.storage().read()?;
        let stable = self.buffer.is_stable();
        let (base, layout) = (0, &self.layout);
        Ok(TensorMap { bytes, base, layout, dtype: self.dtype, stable, _access })
    }

    /// Makes the elements accessible for writing.
    ///
    /// Succeeds for the sole holder of memory that was allocated here (or came from a vector) and
    /// never shared with another process. Clones and views are holders too, so drop them first.
    /// [`make_mut`](Tensor::make_mut) copies where this refuses.
    ///
    /// ```
    /// use cenote::{DType, Error, NotWritable, Tensor};
    ///
    /// let mut tensor = Tensor::new(&[4], DType::U8)?;
    /// tensor.map_mut()?.set::<u8>(&[2], 7)?;
    ///
    /// let view = tensor.narrow(0, 0, 2)?;
    /// let refused = tensor.map_mut().err();
    /// assert!(matches!(refused, Some(Error::NotWritable { why: NotWritable::Shared })));
    /// drop(view);
    /// assert!(tensor.map_mut().is_ok());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    #[inline]
    pub fn map_mut(&mut self) -> Result<TensorMapMut<'_>> {
        let (dtype, format, layout) = (self.dtype, self.format, Shown::Whole(&self.layout));
        let refused = |why| Error::NotWritable { why };
        let storage = self.buffer.storage_mut().map_err(refused)?;
        let (len, foreign) = (storage.len(), storage.foreign());
        // The planes of an image may lie beyond its elements.
        let range = || if format.is_some() { 0..len } else { layout.byte_range() };
        let written = storage.write(range)?;
        let (bytes, base, _access) = written.ok_or_else(|| refused(foreign))?;
        Ok(TensorMapMut { bytes, base, layout, dtype, format, _access })
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Tensor");
        debug.field("shape", &self.shape()).field("dtype", &self.dtype);
        if !self.layout.is_contiguous() {
            debug.field("strides", &self.strides());
        }
        if let Some(format) = self.format {
            debug.field("format", &format);
        }
        debug.field("memory", &self.memory()).field("buffer", &self.buffer_identity().id());
        debug.finish()
    }
}
