//! What an image of one size and format is like. The frames of a camera are all alike: then nothing is worked out
//! again.

use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::buffer::handle::Handle;
use crate::tensor::image::image_layout;
use crate::types::device::Device;
use crate::types::layout::Layout;
use crate::types::pixel_format::PixelFormat;

/// Everything about an image but its buffer.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// In pixels.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "pools are on Linux only"))]
    size: (usize, usize),
    format: PixelFormat,
    /// Of all planes, from the start of the buffer.
    bytes: usize,
    layout: Layout,
}

impl Plan {
    /// Of an image whose rows start at multiples of so many bytes.
    pub(crate) fn new(
        (width, height): (usize, usize),
        format: PixelFormat,
        row_alignment: usize,
    ) -> Result<Plan> {
        let shape = format.shape(width, height)?;
        let item_size = format.dtype().size();
        let stride = format.min_row_stride(width)?.checked_next_multiple_of(row_alignment);
        let stride =
            stride.ok_or_else(|| Error::SizeOverflow { shape: (*shape).into(), item_size })?;
        let layout = image_layout(format, &shape, height, stride, 0)?;
        let bytes = format.image_bytes(width, height, stride)?;
        Ok(Plan { size: (width, height), format, bytes, layout })
    }

    /// Whether an image of this size and format is like this.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn is_of(&self, size: (usize, usize), format: PixelFormat) -> bool {
        (self.size, self.format) == (size, format)
    }

    /// The bytes that it needs.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes an image in a buffer.
    #[inline]
    pub(crate) fn cast(self, buffer: Handle) -> Result<Tensor> {
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
    fn what_is_planned_is_an_image() {
        for format in PixelFormat::all() {
            for (size, row_alignment) in [((5, 3), 1), ((64, 48), 1), ((5, 3), 64), ((1, 1), 1)] {
                let plan = Plan::new(size, format, row_alignment).unwrap();
                let bytes = Tensor::options().create(&[plan.bytes()], DType::U8).unwrap();
                let planned = plan.clone().cast(bytes.buffer.clone()).unwrap();
                let found = bytes.reinterpreted(plan.layout, format.dtype()).unwrap();
                let found = found.with_format(format).unwrap();
                assert_eq!((planned.layout(), planned.dtype()), (found.layout(), found.dtype()));
                assert_eq!(planned.image_size(), Some(size));
                assert_eq!(planned.format(), found.format());
            }
        }
    }

    #[test]
    fn what_cannot_be_is_not_planned_and_what_has_no_room_is_not_made() {
        assert!(Plan::new((0, 4), PixelFormat::Rgb8, 1).is_err());
        assert!(Plan::new((usize::MAX, 2), PixelFormat::Rgb8, 1).is_err());
        assert!(Plan::new((4, 4), PixelFormat::Rgb8, 1 << 63).is_err());
        let plan = Plan::new((4, 4), PixelFormat::Nv12, 1).unwrap();
        let room = Tensor::options().create(&[plan.bytes() - 1], DType::U8).unwrap();
        assert!(plan.cast(room.buffer.clone()).is_err());
    }
}
