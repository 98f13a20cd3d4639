//! The handle: a buffer, a layout over it, and the type of its elements.
//!
//! A [`Tensor`] is like an `Arc`: cloning it is cheap, and clones and views share one buffer. The rule for
//! writing is that of `Arc::get_mut`: only the sole holder can write, and only memory that was never shared
//! with another process.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, NotWritable, Result};
use crate::memory::choose::selection::Selection;
use crate::memory::kind::TensorMemory;
use crate::memory::storage::Protection;
use crate::tensor::buffer::BufferIdentity;
use crate::tensor::buffer::handle::Handle;
use crate::tensor::map::{MapLayout, TensorMap, TensorMapMut};
use crate::types::device::Device;
use crate::types::dtype::DType;
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
    /// Lies inside the buffer. This is checked whenever it changes.
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    pub(crate) format: Option<PixelFormat>,
    /// Planes 1.. of an image whose planes do not follow each other in one buffer.
    pub(crate) far_planes: Option<Arc<Vec<Tensor>>>,
}

impl Tensor {
    /// Makes a tensor. Fails unless the layout matches the dtype and lies in the buffer.
    #[inline]
    pub(crate) fn over(buffer: Handle, layout: Layout, dtype: DType) -> Result<Tensor> {
        Tensor::check(&layout, dtype, buffer.storage().len())?;
        Ok(Tensor::of(buffer, layout, dtype))
    }

    /// Fails unless a layout matches the dtype and lies in a buffer of `len` bytes.
    #[inline]
    pub(crate) fn check(layout: &Layout, dtype: DType, len: usize) -> Result<()> {
        if layout.item_size() != dtype.size() {
            return Err(Error::ItemSize {
                layout: layout.item_size(),
                dtype: dtype.name(),
                size: dtype.size(),
            });
        }
        layout.fits(len)
    }

    /// Makes a tensor. The caller has checked that the layout matches the dtype and lies in the buffer.
    #[inline]
    pub(crate) fn of(buffer: Handle, layout: Layout, dtype: DType) -> Tensor {
        Tensor { buffer, layout, dtype, device: Device::cpu(), format: None, far_planes: None }
    }

    /// Makes a tensor from the fields of a descriptor. Their offset is from the start of the segment. Fails if
    /// they do not match the buffer.
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

    /// The distance in bytes from one element to the next, for each dimension. It may be zero or negative.
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// Shape, strides and offset in the buffer.
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

    /// The type of its elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device that it is meant for. This is only a tag: the bytes are where [`memory`](Tensor::memory) says.
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

    /// How its memory was chosen: what was tried, and why other kinds were passed over.
    pub fn selection(&self) -> &Selection {
        self.buffer.selection()
    }

    /// A key for its buffer, the same for all clones and views. Use it for caches of things made from the
    /// buffer, such as device handles.
    pub fn buffer_identity(&self) -> &BufferIdentity {
        self.buffer.identity()
    }

    /// What prevents other processes from writing the bytes that they receive.
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

    /// Returns why [`map_mut`](Tensor::map_mut) would refuse now, or `None` if it would not.
    pub fn not_writable(&self) -> Option<NotWritable> {
        self.buffer.not_writable()
    }

    /// Makes the elements accessible for reading.
    ///
    /// For heap and shared memory this makes no system call and takes nanoseconds. A DMA-BUF stays mapped; one
    /// system call here and one when the guard is dropped bracket the access of the CPU, so that it sees what
    /// devices have written. For an OpenGL buffer this waits until the GPU has executed the commands that write
    /// it.
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
    /// Fails unless this is the sole holder of memory that was allocated here (or came from a vector) and never
    /// shared with another process. Clones and views are holders too, so drop them first.
    /// [`make_mut`](Tensor::make_mut) copies where this fails.
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
        let (dtype, format, layout) = (self.dtype, self.format, MapLayout::Whole(&self.layout));
        let refused = |why| Error::NotWritable { why };
        let storage = self.buffer.storage_mut().map_err(refused)?;
        let (len, foreign) = (storage.len(), storage.why_not_writable());
        // The planes of an image may lie beyond its elements.
        let range = || if format.is_some() { 0..len } else { layout.byte_range() };
        let written = storage.write(range)?;
        let (bytes, base, _access) = written.ok_or_else(|| refused(foreign))?;
        Ok(TensorMapMut { bytes, base, layout, dtype, format, _access })
    }
}

/// Fails unless `given` values are as many as a layout has elements.
pub(crate) fn check_len(layout: &Layout, given: usize) -> Result<()> {
    if layout.len() == given {
        return Ok(());
    }
    Err(Error::WrongLen { shape: layout.shape().into(), expected: layout.len(), given })
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
