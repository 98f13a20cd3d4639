//! Depth images: the distance of each pixel from the camera.

use std::fmt;

use crate::domain::depth::intrinsics::Intrinsics;
use crate::domain::domain::{Domain, sealed, tensor_accessors};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::types::dtype::DType;
use crate::types::metadata::header::{Header, header_accessors};
use crate::types::metadata::{Room, Words};
use crate::types::pixel_format::PixelFormat;

/// A depth image: metres as `f32`, or millimetres as `u16`.
///
/// A thin layer over one [`Tensor`] `[height, width]`. A pixel without a measurement is 0; `NaN`, infinite and
/// negative values count as no measurement too. The rule for writing is that of tensors: depths can be written
/// by the only holder of an image that was never sent.
///
/// ```
/// use cenote::{DType, DepthImage};
/// # unsafe { std::env::set_var("CENOTE_FORCE_MEM", "1") };
///
/// let depth = DepthImage::new(480, 640, DType::F32)?; // height first, as in a shape
/// assert_eq!((depth.width(), depth.height()), (640, 480));
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Clone)]
pub struct DepthImage {
    /// `f32` or `u16`, with a format.
    pub(crate) tensor: Tensor,
    /// In pixels.
    pub(crate) size: (usize, usize),
    pub(crate) header: Header,
    pub(crate) intrinsics: Option<Intrinsics>,
}

impl DepthImage {
    /// Makes a depth image of a tensor `[height, width]` of `f32` (metres) or `u16` (millimetres), without a
    /// copy. Fails for other shapes and dtypes.
    pub fn from_tensor(tensor: Tensor) -> Result<DepthImage> {
        let format = DepthImage::format_of(tensor.dtype())?;
        let tensor = tensor.with_format(format)?;
        let size = tensor.image_size().unwrap_or_default();
        Ok(DepthImage { tensor, size, header: Header::default(), intrinsics: None })
    }

    /// The pixel format of depths of this dtype. Fails for other dtypes.
    pub(crate) fn format_of(dtype: DType) -> Result<PixelFormat> {
        match dtype {
            DType::F32 => Ok(PixelFormat::Mono32F),
            DType::U16 => Ok(PixelFormat::Depth16),
            other => Err(Error::DepthDType { found: other.name() }),
        }
    }

    /// The width in pixels.
    pub fn width(&self) -> usize {
        self.size.0
    }

    /// The height in pixels.
    pub fn height(&self) -> usize {
        self.size.1
    }

    /// [`F32`](DType::F32): metres. [`U16`](DType::U16): millimetres.
    pub fn dtype(&self) -> DType {
        self.tensor.dtype()
    }

    /// The bytes from one row to the next.
    pub fn step(&self) -> usize {
        self.tensor.effective_row_stride().unwrap_or_default()
    }

    /// The camera that took the image, if known.
    pub fn intrinsics(&self) -> Option<Intrinsics> {
        self.intrinsics
    }

    /// Sets the camera that took the image. Fails unless its numbers are finite and its focal lengths positive.
    pub fn set_intrinsics(&mut self, intrinsics: impl Into<Option<Intrinsics>>) -> Result<()> {
        let intrinsics = intrinsics.into();
        intrinsics.as_ref().map(Intrinsics::check).transpose()?;
        self.intrinsics = intrinsics;
        Ok(())
    }
}

tensor_accessors!(DepthImage);
header_accessors!(DepthImage);

impl sealed::Sealed for DepthImage {}

impl Domain for DepthImage {
    const KIND: u16 = 3;

    fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    fn write_meta(&self, room: &mut Room<'_>) {
        self.header.write(room);
        if let Some(intrinsics) = &self.intrinsics {
            intrinsics.write(room);
        }
    }

    fn from_parts(tensor: Tensor, mut words: Words<'_>) -> Result<DepthImage> {
        let header = Header::read(&mut words)?;
        let mut depth = DepthImage { header, ..DepthImage::from_tensor(tensor)? };
        if words.end().is_err() {
            depth.set_intrinsics(Intrinsics::read(&mut words)?)?;
        }
        words.end()?;
        Ok(depth)
    }
}

impl fmt::Debug for DepthImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DepthImage")
            .field("width", &self.width())
            .field("height", &self.height())
            .field("dtype", &self.dtype())
            .field("intrinsics", &self.intrinsics)
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}
