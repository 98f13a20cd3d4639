//! How a tensor is allocated, in the manner of `std::fs::OpenOptions`.

use crate::copies;
use crate::copies::CopyReason;
use crate::error::{Error, Result};
use crate::memory::choose;
use crate::memory::kind::TensorMemory;
use crate::memory::request::{Advice, MAX_ALIGN, MIN_ALIGN, ROW_ALIGN, Request};
use crate::memory::selection::Selection;
use crate::memory::storage::{Protection, Storage};
use crate::tensor::Tensor;
use crate::tensor::buffer::handle::Handle;
use crate::tensor::image::image_layout;
use crate::types::dtype::{DType, Element};
use crate::types::layout::Layout;
use crate::types::pixel_format::PixelFormat;

/// The longest name: what memfd_create(2) takes.
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
    /// The memory is named, but not by the user.
    unasked: bool,
    #[cfg(all(target_os = "linux", feature = "gl"))]
    gl: Option<crate::gl::context::GlContext>,
}

impl TensorOptions {
    /// The options that [`Tensor::new`] uses: any memory, no name, 64-byte alignment.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for one kind of memory. If it cannot be had, creating the tensor is an error. (Under
    /// `CENOTE_FORCE_MEM` every tensor is on the heap all the same, and its selection says so.)
    ///
    /// Whoever asks for `Dma` gets a DMA-BUF from a heap of the kernel's where there is one, and
    /// accepts that those whom it is sent to could write it ([`Protection`]). Where nobody asks,
    /// DMA-BUFs are made of memory that the kernel protects (udmabuf), or else it is shared memory.
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

    /// The kind of memory that another tensor has, for a copy of it.
    pub(crate) fn memory_of(self, tensor: &Tensor) -> Self {
        // A copy of what the kernel protects is protected, too.
        let unasked = tensor.protection() == Protection::Kernel;
        #[cfg(all(target_os = "linux", feature = "gl"))]
        if let Some(context) = tensor.gl_context() {
            return self.gl(&context);
        }
        TensorOptions { unasked, ..self.memory(tensor.memory()) }
    }

    /// Names the memory. The system shows the name of shared memory, as in `/proc/PID/maps`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Asks for the first byte to lie at a multiple of `alignment`, a power of two. Less than 64
    /// means 64.
    pub fn alignment(mut self, alignment: usize) -> Self {
        self.alignment = Some(alignment);
        self
    }

    /// Asks for the rows of an [`image`](TensorOptions::image), those of its first plane, to start
    /// at multiples of `alignment` bytes, a power of two, as hardware often wants. In DMA-BUFs it is 64
    /// unless this says otherwise; in other memory rows are packed.
    pub fn row_alignment(mut self, alignment: usize) -> Self {
        self.row_alignment = Some(alignment);
        self
    }

    /// Asks for huge pages, without insisting: see [`Selection::not_granted`].
    ///
    /// [`Selection::not_granted`]: crate::Selection::not_granted
    pub fn huge_pages(mut self, wanted: bool) -> Self {
        self.advice.huge_pages = wanted;
        self
    }

    /// Asks for all pages to be present before the first touch, without insisting.
    pub fn prefault(mut self, wanted: bool) -> Self {
        self.advice.prefault = wanted;
        self
    }

    /// Allocates a tensor of zeros.
    pub fn create(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        self.create_layout(Layout::contiguous(shape, dtype.size())?, dtype)
    }

    /// Allocates a tensor with the elements of `data`, in row-major order.
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

    /// An image with this row stride if the format allows it, else with the smallest that is
    /// aligned as asked.
    pub(crate) fn image_with_stride(
        &self,
        (width, height): (usize, usize),
        format: PixelFormat,
        stride: Option<usize>,
    ) -> Result<Tensor> {
        let shape = format.shape(width, height)?;
        let fits = |stride: &usize| format.check_row_stride(width, *stride).is_ok();
        let place = |align: usize| {
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
        // Where the memory is chosen by itself there must be room for rows as either wants them.
        let packed = place(check_alignment(self.row_alignment.unwrap_or(1))?)?;
        let aligned = match self.row_alignment {
            None if self.may_be_dma() => place(ROW_ALIGN)?,
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

    fn may_be_dma(&self) -> bool {
        match self.memory {
            Some(memory) => memory == TensorMemory::Dma,
            None => TensorMemory::Dma.is_available(),
        }
    }

    pub(crate) fn create_layout(&self, layout: Layout, dtype: DType) -> Result<Tensor> {
        let (storage, selection) = self.request(layout.byte_range().end)?;
        Tensor::over(Handle::new(storage, selection), layout, dtype)
    }

    fn request(&self, len: usize) -> Result<(Storage, Selection)> {
        let request = Request {
            len,
            align: check_alignment(self.alignment.unwrap_or(MIN_ALIGN))?.max(MIN_ALIGN),
            memory: self.memory,
            asked: self.memory.is_some() && !self.unasked,
            #[cfg(all(target_os = "linux", feature = "gl"))]
            gl: self.gl.as_ref(),
            name: self.name.as_deref().map(check_name).transpose()?,
            advice: self.advice,
        };
        choose::allocate(&request)
    }
}

pub(crate) fn check_len(layout: &Layout, given: usize) -> Result<()> {
    if layout.len() == given {
        return Ok(());
    }
    Err(Error::WrongLen { shape: layout.shape().into(), expected: layout.len(), given })
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
