//! How a tensor is allocated, in the manner of `std::fs::OpenOptions`.

use crate::copies::{self, CopyReason};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::format::PixelFormat;
use crate::layout::Layout;
use crate::memory::TensorMemory;
use crate::memory::select::{self, Advice, MAX_ALIGN, MIN_ALIGN, Request};
use crate::tensor::Tensor;
use crate::tensor::buffer::Handle;
use crate::tensor::image::image_layout;

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
}

impl TensorOptions {
    /// The options that [`Tensor::new`] uses: any memory, no name, 64-byte alignment.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for one kind of memory. If it cannot be had, creating the tensor is an error. (Under
    /// `CENOTE_FORCE_MEM` every tensor is on the heap all the same, and its selection says so.)
    pub fn memory(mut self, memory: TensorMemory) -> Self {
        self.memory = Some(memory);
        self
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
    /// at multiples of `alignment` bytes, a power of two, as hardware often wants.
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
        let align = check_alignment(self.row_alignment.unwrap_or(1))?;
        let shape = format.shape(width, height)?;
        let overflow =
            || Error::SizeOverflow { shape: (*shape).into(), item_size: format.dtype().size() };
        let smallest = format.min_row_stride(width)?.checked_next_multiple_of(align);
        let stride = match stride.filter(|&stride| format.check_row_stride(width, stride).is_ok()) {
            Some(stride) => stride,
            None => smallest.ok_or_else(overflow)?,
        };
        let layout = image_layout(format, &shape, height, stride, 0)?;
        let len = format.image_bytes(width, height, stride)?;
        let mut tensor = self.allocate(layout, len, format.dtype())?;
        tensor.set_format(format)?;
        Ok(tensor)
    }

    pub(crate) fn create_layout(&self, layout: Layout, dtype: DType) -> Result<Tensor> {
        let end = layout.byte_range().end;
        self.allocate(layout, end, dtype)
    }

    fn allocate(&self, layout: Layout, len: usize, dtype: DType) -> Result<Tensor> {
        let request = Request {
            len,
            align: check_alignment(self.alignment.unwrap_or(MIN_ALIGN))?.max(MIN_ALIGN),
            memory: self.memory,
            name: self.name.as_deref().map(check_name).transpose()?,
            advice: self.advice,
        };
        let (storage, selection) = select::allocate(&request)?;
        Tensor::over(Handle::new(storage, selection), layout, dtype)
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
