//! The layout of an image of one size and format. It is computed once and reused for all frames of a camera,
//! which have the same size and format.

use crate::error::{Error, Result};
use crate::tensor::buffer::handle::Handle;
use crate::tensor::image::geometry::image_layout;
use crate::tensor::tensor::Tensor;
use crate::types::device::Device;
use crate::types::layout::Layout;
use crate::types::pixel_format::PixelFormat;

/// Everything that an image needs, except its buffer.
#[derive(Debug, Clone)]
pub(crate) struct ImageLayout {
    /// Width and height in pixels.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "pools are on Linux only"))]
    size: (usize, usize),
    format: PixelFormat,
    /// Bytes of all planes, from the start of the buffer.
    bytes: usize,
    layout: Layout,
}

impl ImageLayout {
    /// The layout of an image whose rows start at multiples of `row_alignment` bytes. Fails if a size is zero or
    /// overflows.
    pub(crate) fn new(
        (width, height): (usize, usize),
        format: PixelFormat,
        row_alignment: usize,
    ) -> Result<ImageLayout> {
        let shape = format.shape(width, height)?;
        let item_size = format.dtype().size();
        let stride = format.min_row_stride(width)?.checked_next_multiple_of(row_alignment);
        let stride =
            stride.ok_or_else(|| Error::SizeOverflow { shape: (*shape).into(), item_size })?;
        let layout = image_layout(format, &shape, height, stride, 0)?;
        let bytes = format.image_bytes(width, height, stride)?;
        Ok(ImageLayout { size: (width, height), format, bytes, layout })
    }

    /// Returns whether this is the layout of an image of this size and format.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn is_for(&self, size: (usize, usize), format: PixelFormat) -> bool {
        (self.size, self.format) == (size, format)
    }

    /// The bytes that the image needs.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes an image in a buffer. Fails if the buffer is too small.
    #[inline]
    pub(crate) fn over(self, buffer: Handle) -> Result<Tensor> {
        buffer.check_room(self.bytes)?;
        let (dtype, format) = (self.format.dtype(), Some(self.format));
        let device = Device::cpu();
        Ok(Tensor { buffer, layout: self.layout, dtype, device, format, far_planes: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::dtype::DType;

    #[test]
    fn an_image_layout_equals_that_of_a_tensor_with_the_format() {
        for format in PixelFormat::all() {
            for (size, row_alignment) in [((5, 3), 1), ((64, 48), 1), ((5, 3), 64), ((1, 1), 1)] {
                let image = ImageLayout::new(size, format, row_alignment).unwrap();
                let bytes = Tensor::options().create(&[image.bytes()], DType::U8).unwrap();
                let made = image.clone().over(bytes.buffer.clone()).unwrap();
                let found = bytes.reinterpreted(image.layout, format.dtype()).unwrap();
                let found = found.with_format(format).unwrap();
                assert_eq!((made.layout(), made.dtype()), (found.layout(), found.dtype()));
                assert_eq!(made.image_size(), Some(size));
                assert_eq!(made.format(), found.format());
            }
        }
    }

    #[test]
    fn impossible_sizes_and_small_buffers_are_refused() {
        assert!(ImageLayout::new((0, 4), PixelFormat::Rgb8, 1).is_err());
        assert!(ImageLayout::new((usize::MAX, 2), PixelFormat::Rgb8, 1).is_err());
        assert!(ImageLayout::new((4, 4), PixelFormat::Rgb8, 1 << 63).is_err());
        let image = ImageLayout::new((4, 4), PixelFormat::Nv12, 1).unwrap();
        let room = Tensor::options().create(&[image.bytes() - 1], DType::U8).unwrap();
        assert!(image.over(room.buffer.clone()).is_err());
    }
}
