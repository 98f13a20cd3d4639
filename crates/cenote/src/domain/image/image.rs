//! Images: a tensor with a pixel format, and a header that says where and when it was recorded.

use std::fmt;

use crate::domain::domain::{Domain, sealed, tensor_accessors};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::types::metadata::header::{Header, header_accessors};
use crate::types::metadata::{Room, Words};
use crate::types::pixel_format::PixelFormat;

/// An image.
///
/// A thin layer over one [`Tensor`] with a [`PixelFormat`]. The rule for writing is that of tensors: pixels
/// can be written by the only holder of an image that was never sent. [`make_mut`](Image::make_mut) copies
/// where [`map_mut`](Image::map_mut) refuses.
///
/// ```
/// use cenote::{Image, PixelFormat};
/// # unsafe { std::env::set_var("CENOTE_FORCE_MEM", "1") };
///
/// let mut image = Image::new(640, 480, PixelFormat::Rgb8)?;
/// image.set_frame_id("camera_front")?;
/// assert_eq!((image.width(), image.height(), image.step()), (640, 480, 1920));
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Clone)]
pub struct Image {
    /// Has a format.
    pub(crate) tensor: Tensor,
    pub(crate) format: PixelFormat,
    /// In pixels.
    pub(crate) size: (usize, usize),
    pub(crate) header: Header,
}

impl Image {
    /// Makes an image of a tensor with a [format](Tensor::with_format), without a copy. Fails if the tensor
    /// has no format.
    ///
    /// ```
    /// use cenote::{DType, Image, PixelFormat, Tensor};
    ///
    /// let tensor = Tensor::new(&[480, 640, 3], DType::U8)?;
    /// assert!(Image::from_tensor(tensor.clone()).is_err()); // RGB or BGR?
    /// let image = Image::from_tensor(tensor.with_format(PixelFormat::Bgr8)?)?;
    /// assert_eq!((image.width(), image.height()), (640, 480));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn from_tensor(tensor: Tensor) -> Result<Image> {
        match (tensor.format(), tensor.image_size()) {
            (Some(format), Some(size)) => Ok(Image::of(tensor, (format, size), Header::default())),
            _ => Err(Error::NoFormat { op: "Image::from_tensor" }),
        }
    }

    /// Makes an image of a tensor that has this format, and this size in pixels.
    #[inline(always)]
    pub(crate) fn of(
        tensor: Tensor,
        (format, size): (PixelFormat, (usize, usize)),
        header: Header,
    ) -> Image {
        Image { tensor, format, size, header }
    }

    /// The width in pixels.
    pub fn width(&self) -> usize {
        self.size.0
    }

    /// The height in pixels.
    pub fn height(&self) -> usize {
        self.size.1
    }

    /// The pixel format.
    pub fn format(&self) -> PixelFormat {
        self.format
    }

    /// The bytes from one row of the first plane to the next.
    pub fn step(&self) -> usize {
        self.tensor.effective_row_stride().unwrap_or_default()
    }

    /// The number of values for one pixel along the tensor's axis of channels: see
    /// [`PixelFormat::channels`].
    pub fn channels(&self) -> usize {
        self.format.channels()
    }
}

tensor_accessors!(Image);
header_accessors!(Image);

impl sealed::Sealed for Image {}

impl Domain for Image {
    const KIND: u16 = 1;

    fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    #[inline]
    fn write_meta(&self, room: &mut Room<'_>) {
        self.header.write(room);
    }

    fn from_parts(tensor: Tensor, words: Words<'_>) -> Result<Image> {
        let header = Header::read_all(words)?;
        Ok(Image { header, ..Image::from_tensor(tensor)? })
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("width", &self.width())
            .field("height", &self.height())
            .field("format", &self.format)
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}
