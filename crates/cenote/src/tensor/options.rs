//! How a tensor is allocated: options in the manner of `std::fs::OpenOptions`.

use crate::copies;
use crate::copies::CopyReason;
use crate::error::{Error, Result};
use crate::memory::choose::choose;
use crate::memory::choose::request::{Advice, MAX_ALIGN, MIN_ALIGN, ROW_ALIGN, Request};
use crate::memory::choose::selection::Selection;
use crate::memory::kind::TensorMemory;
use crate::memory::storage::{Protection, Storage};
use crate::tensor::buffer::handle::Handle;
use crate::tensor::image::geometry::image_layout;
use crate::tensor::tensor::{Tensor, check_len};
use crate::types::dtype::{DType, Element};
use crate::types::layout::Layout;
use crate::types::pixel_format::PixelFormat;

/// The longest name that memfd_create(2) takes.
const MAX_NAME: usize = 249;

/// Options for allocating a tensor.
///
/// ```
/// use cenote::{DType, TensorMemory, TensorOptions};
///
/// let tensor = TensorOptions::new()
///     .memory(TensorMemory::Mem)
///     .alignment(4096)
///     .create(&[1080, 1920, 3], DType::U8)?;
/// assert_eq!(tensor.memory(), TensorMemory::Mem);
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct TensorOptions {
    memory: Option<TensorMemory>,
    name: Option<String>,
    alignment: Option<usize>,
    row_alignment: Option<usize>,
    advice: Advice,
    /// `memory` was not chosen by the caller, but copied from another tensor.
    inherited_memory: bool,
    #[cfg(all(target_os = "linux", feature = "gl"))]
    gl: Option<crate::gl::context::GlContext>,
}

impl TensorOptions {
    /// The options that [`Tensor::new`] uses: any memory, no name, 64-byte alignment.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for one kind of memory. If it is not available, creating the tensor fails. (Under
    /// `CENOTE_FORCE_MEM` every tensor is on the heap, and its selection says so.)
    ///
    /// A caller that asks for `Dma` gets a DMA-BUF from a dma-heap if there is one, which the processes that it is
    /// sent to could write ([`Protection`]). Without this option, cenote uses DMA-BUFs only if the kernel
    /// protects their memory (udmabuf), and otherwise shared memory.
    ///
    /// [`Protection`]: crate::Protection
    pub fn memory(mut self, memory: TensorMemory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Asks for a buffer of an OpenGL context.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    pub(crate) fn gl(mut self, context: &crate::gl::context::GlContext) -> Self {
        self.gl = Some(context.clone());
        self.memory(TensorMemory::Pbo)
    }

    /// Uses the kind of memory that another tensor has, for a copy of it.
    pub(crate) fn memory_of(self, tensor: &Tensor) -> Self {
        // A copy of memory that the kernel protects is protected too.
        let inherited_memory = tensor.protection() == Protection::Kernel;
        #[cfg(all(target_os = "linux", feature = "gl"))]
        if let Some(context) = tensor.gl_context() {
            return self.gl(&context);
        }
        TensorOptions { inherited_memory, ..self.memory(tensor.memory()) }
    }

    /// Names the memory. The system shows the name of shared memory, for example in `/proc/PID/maps`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Aligns the first byte to a multiple of `alignment`, a power of two. Less than 64 means 64.
    pub fn alignment(mut self, alignment: usize) -> Self {
        self.alignment = Some(alignment);
        self
    }

    /// Aligns the rows of an [`image`](TensorOptions::image), those of its first plane, to multiples of
    /// `alignment` bytes, a power of two, which much hardware needs. The default is 64 in DMA-BUFs; in other
    /// memory rows are packed.
    pub fn row_alignment(mut self, alignment: usize) -> Self {
        self.row_alignment = Some(alignment);
        self
    }

    /// Asks for huge pages. If there are none, [`Selection::not_granted`] says so.
    ///
    /// [`Selection::not_granted`]: crate::Selection::not_granted
    pub fn huge_pages(mut self, wanted: bool) -> Self {
        self.advice.huge_pages = wanted;
        self
    }

    /// Asks for all pages to be present before the first access. If they are not,
    /// [`Selection::not_granted`](crate::Selection::not_granted) says so.
    pub fn prefault(mut self, wanted: bool) -> Self {
        self.advice.prefault = wanted;
        self
    }

    /// Allocates a tensor of zeros. Fails as [`Tensor::new`] does, and if an option cannot be met.
    pub fn create(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        self.create_layout(Layout::contiguous(shape, dtype.size())?, dtype)
    }

    /// Allocates a tensor and copies `data` into it, in row-major order.
    pub fn create_from_slice<T: Element>(&self, data: &[T], shape: &[usize]) -> Result<Tensor> {
        let layout = Layout::contiguous(shape, T::DTYPE.size())?;
        check_len(&layout, data.len())?;
        let mut tensor = self.create_layout(layout, T::DTYPE)?;
        tensor.map_mut()?.as_mut_slice::<T>()?.copy_from_slice(data);
        copies::count(CopyReason::CopiedIn, tensor.nbytes());
        Ok(tensor)
    }

    /// Allocates a black image: a tensor of the shape and row stride that `format` needs.
    ///
    /// ```
    /// use cenote::{PixelFormat, TensorOptions};
    ///
    /// let frame = TensorOptions::new().row_alignment(64).image(100, 50, PixelFormat::Rgb8)?;
    /// assert_eq!(frame.shape(), [50, 100, 3]);
    /// assert_eq!(frame.row_stride(), Some(320));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn image(&self, width: usize, height: usize, format: PixelFormat) -> Result<Tensor> {
        self.image_with_stride((width, height), format, None)
    }

    /// Allocates an image with this row stride if the format allows it, else with the smallest one of the
    /// row alignment.
    pub(crate) fn image_with_stride(
        &self,
        (width, height): (usize, usize),
        format: PixelFormat,
        stride: Option<usize>,
    ) -> Result<Tensor> {
        let shape = format.shape(width, height)?;
        let fits = |stride: &usize| format.check_row_stride(width, *stride).is_ok();
        let lay_out = |align: usize| {
            let overflow =
                || Error::SizeOverflow { shape: (*shape).into(), item_size: format.dtype().size() };
            let smallest = format.min_row_stride(width)?.checked_next_multiple_of(align);
            let stride = match stride.filter(fits) {
                Some(stride) => stride,
                None => smallest.ok_or_else(overflow)?,
            };
            let layout = image_layout(format, &shape, height, stride, 0)?;
            Ok::<_, Error>((layout, format.image_bytes(width, height, stride)?))
        };
        // The kind of memory is not known before the allocation, so it must have room for either layout.
        let packed = lay_out(check_alignment(self.row_alignment.unwrap_or(1))?)?;
        let aligned = match self.row_alignment {
            None if self.may_be_dma() => lay_out(ROW_ALIGN)?,
            _ => packed.clone(),
        };
        let (storage, mut selection) = self.request(aligned.1.max(packed.1))?;
        let (layout, _) = match storage.memory {
            TensorMemory::Dma => aligned,
            _ => packed,
        };
        if storage.memory == TensorMemory::Dma && self.row_alignment.is_none() && stride.is_none() {
            selection.set_row_alignment(ROW_ALIGN);
        }
        let mut tensor = Tensor::over(Handle::new(storage, selection), layout, format.dtype())?;
        tensor.set_format(format)?;
        Ok(tensor)
    }

    /// Returns whether the memory may be a DMA-BUF.
    fn may_be_dma(&self) -> bool {
        match self.memory {
            Some(memory) => memory == TensorMemory::Dma,
            None => TensorMemory::Dma.is_available(),
        }
    }

    /// Allocates a tensor of zeros with this layout.
    pub(crate) fn create_layout(&self, layout: Layout, dtype: DType) -> Result<Tensor> {
        let (storage, selection) = self.request(layout.byte_range().end)?;
        Tensor::over(Handle::new(storage, selection), layout, dtype)
    }

    /// Allocates `len` bytes.
    fn request(&self, len: usize) -> Result<(Storage, Selection)> {
        let request = Request {
            len,
            align: check_alignment(self.alignment.unwrap_or(MIN_ALIGN))?.max(MIN_ALIGN),
            memory: self.memory,
            asked: self.memory.is_some() && !self.inherited_memory,
            #[cfg(all(target_os = "linux", feature = "gl"))]
            gl: self.gl.as_ref(),
            name: self.name.as_deref().map(check_name).transpose()?,
            advice: self.advice,
        };
        choose::allocate(&request)
    }
}

impl Tensor {
    /// Allocates a tensor of zeros in the best memory that is available: a DMA-BUF, else shared memory, else
    /// the heap. [`selection`](Tensor::selection) returns what was tried. [`TensorOptions`] ask for one kind.
    ///
    /// Fails for a dimension of length zero, for more than [`MAX_DIMS`](crate::MAX_DIMS) dimensions, and for a
    /// size that overflows. An empty shape is a scalar.
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

    /// Allocates a tensor as [`Tensor::new`] does, and copies `data` into it in row-major order. Fails unless
    /// there are as many values as elements.
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
}

fn check_alignment(given: usize) -> Result<usize> {
    if given.is_power_of_two() && given <= MAX_ALIGN {
        return Ok(given);
    }
    Err(Error::BadAlignment { given, max: MAX_ALIGN })
}

fn check_name(name: &str) -> Result<&str> {
    let refuse = |rule| Err(Error::BadName { given: name.into(), rule });
    if name.contains('\0') {
        refuse("it contains a NUL byte")
    } else if name.len() > MAX_NAME {
        refuse("it is longer than 249 bytes")
    } else {
        Ok(name)
    }
}
