//! How the frames of a camera lie in its buffers.

use crate::error::{Error, Result};
use crate::sys::v4l2::{Extent, Filled, Picture, Written};
use crate::tensor::Tensor;
use crate::types::pixel_format::PixelFormat;
use crate::types::pixel_format::geometry::Plane;

/// The images of a camera, and where they lie in its buffers.
#[derive(Debug, Clone)]
pub(crate) struct FrameLayout {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: PixelFormat,
    row_stride: usize,
    /// The memory areas of a buffer: one, or one for each plane.
    pub(crate) parts: Vec<BufferPart>,
}

/// A memory area of a buffer, which holds an image or a plane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BufferPart {
    /// Its size.
    pub(crate) bytes: usize,
    /// The bytes up to the end of the last row.
    filled: usize,
    /// The plane in it, or the first plane of the image in it.
    plane: Plane,
}

/// Why a frame is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The driver has marked its data as damaged.
    Damaged,
    /// The driver delivered less than an image.
    Short,
}

impl FrameLayout {
    /// The layout that the driver has chosen. Fails if an image does not fit into it.
    pub(crate) fn new(
        (width, height): (usize, usize),
        format: PixelFormat,
        found: &Picture,
    ) -> Result<FrameLayout> {
        let (row_stride, parts) = if found.planes == 1 {
            one_part((width, height), format, &found.extents[0])?
        } else {
            part_per_plane((width, height), format, &found.extents)?
        };
        Ok(FrameLayout { width, height, format, row_stride, parts })
    }

    /// Returns what is wrong with a filled buffer, if anything.
    pub(crate) fn flaw(&self, filled: &Filled) -> Option<Flaw> {
        if filled.broken {
            return Some(Flaw::Damaged);
        }
        let mut parts = self.parts.iter().zip(&filled.written);
        let complete = filled.whole && parts.all(|(part, written)| part.is_complete(written));
        (!complete).then_some(Flaw::Short)
    }

    /// The image in a filled buffer, given its memory: one tensor for each part.
    pub(crate) fn image(&self, memory: &[Tensor], filled: &Filled) -> Result<Tensor> {
        let offsets = filled.written.map(|written| size(written.offset));
        if let [whole] = memory {
            let size = (self.width, self.height);
            return whole.as_image(size, self.format, (self.row_stride, offsets[0]));
        }
        let planes =
            self.parts.iter().zip(offsets).map(|(part, offset)| Plane { offset, ..part.plane });
        Tensor::as_planes(self.format, memory.iter().zip(planes))
    }
}

/// The row stride, and the one part that holds all planes.
fn one_part(
    (width, height): (usize, usize),
    format: PixelFormat,
    extent: &Extent,
) -> Result<(usize, Vec<BufferPart>)> {
    let row_stride = size(extent.row_stride);
    format.check_row_stride(width, row_stride)?;
    let planes = format.planes(width, height, row_stride)?;
    let filled = planes.iter().map(end).max().unwrap_or(0);
    let needed = format.image_bytes(width, height, row_stride)?;
    Ok((row_stride, vec![BufferPart::new(extent, needed, filled, &planes[0])?]))
}

/// The row stride of a tight image, and a part for each plane, with its own stride.
fn part_per_plane(
    (width, height): (usize, usize),
    format: PixelFormat,
    extents: &[Extent],
) -> Result<(usize, Vec<BufferPart>)> {
    let tight = format.min_row_stride(width)?;
    let planes = format.planes(width, height, tight)?;
    let parts = planes.iter().zip(extents).map(|(plane, extent)| {
        let stride = size(extent.row_stride);
        if stride < plane.row_bytes {
            let (min, multiple) = (plane.row_bytes, 1);
            let (given, format) = (stride, format.name());
            return Err(Error::BadRowStride { given, min, multiple, width, format });
        }
        let plane = Plane { offset: 0, stride, ..*plane };
        BufferPart::new(extent, end(&plane), end(&plane), &plane)
    });
    Ok((tight, parts.collect::<Result<_>>()?))
}

impl BufferPart {
    /// Fails if the driver's buffer has less than `needed` bytes.
    fn new(extent: &Extent, needed: usize, filled: usize, plane: &Plane) -> Result<BufferPart> {
        let bytes = size(extent.bytes);
        if bytes < needed {
            return Err(Error::FdTooSmall { needed, size: bytes as u64 });
        }
        Ok(BufferPart { bytes, filled, plane: *plane })
    }

    /// Returns whether the driver has written all of it. Numbers of the driver may be impossible, so they
    /// are checked.
    fn is_complete(&self, written: &Written) -> bool {
        let (offset, bytes) = (size(written.offset), size(written.bytes));
        let room = self.bytes.checked_sub(offset).is_some_and(|room| room >= self.filled);
        room && bytes >= self.filled
    }
}

fn size(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The offset at which the last row of a plane ends. It saturates, which an image whose size was computed
/// without overflow does not reach.
fn end(plane: &Plane) -> usize {
    let rows = plane.stride.saturating_mul(plane.rows.saturating_sub(1));
    plane.offset.saturating_add(rows).saturating_add(plane.row_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::config::{BufferOwner, CameraConfig};
    use crate::sys::v4l2::MAX_PLANES;
    use crate::types::pixel_format::fourcc::FourCc;

    fn filled(written: &[(u32, u32)]) -> Filled {
        let mut all = [Written::default(); MAX_PLANES];
        for (to, &(offset, bytes)) in all.iter_mut().zip(written) {
            *to = Written { offset, bytes };
        }
        let (index, sequence, stamp_ns) = (0, 0, 0);
        Filled { index, sequence, stamp_ns, broken: false, whole: true, written: all }
    }

    fn layout(config: &CameraConfig, picture: &Picture) -> Result<FrameLayout> {
        FrameLayout::new((config.width, config.height), config.format, picture)
    }

    #[test]
    fn incomplete_and_damaged_frames_are_detected() {
        let config = CameraConfig {
            width: 20,
            height: 4,
            format: PixelFormat::Rgb8,
            ..CameraConfig::default()
        };
        let mut picture = config.picture().unwrap();
        picture.extents[0] = Extent { row_stride: 64, bytes: 64 * 4 };
        let frames = layout(&config, &picture).unwrap();
        let flaw = |offset, bytes| frames.flaw(&filled(&[(offset, bytes)]));
        assert_eq!(flaw(0, 64 * 4), None);
        // The padding after the last row need not be written.
        assert_eq!(flaw(0, 64 * 3 + 60), None);
        assert_eq!(flaw(0, 64 * 3 + 59), Some(Flaw::Short));
        assert_eq!(flaw(0, 0), Some(Flaw::Short));
        let half = Filled { whole: false, ..filled(&[(0, 64 * 4)]) };
        assert_eq!(frames.flaw(&half), Some(Flaw::Short));
        let broken = Filled { broken: true, ..filled(&[]) };
        assert_eq!(frames.flaw(&broken), Some(Flaw::Damaged));
        // At offset 4 the image ends where the buffer ends. A larger offset is impossible.
        assert_eq!(flaw(4, 64 * 4), None);
        for offset in [5, 64 * 4, u32::MAX] {
            assert_eq!(flaw(offset, 64 * 4), Some(Flaw::Short), "{offset}");
        }
    }

    #[test]
    fn every_plane_must_be_complete() {
        let config = CameraConfig {
            width: 64,
            height: 4,
            format: PixelFormat::Nv12,
            separate_planes: true,
            ..CameraConfig::default()
        };
        let mut picture = config.candidates(BufferOwner::Driver).unwrap()[0];
        assert_eq!((picture.planes, picture.fourcc), (2, FourCc::new(b"NM12").to_u32()));
        assert!(config.candidates(BufferOwner::Caller).is_err());
        picture.extents[0].bytes = 64 * 4;
        assert!(layout(&config, &picture).is_err(), "the second plane has no memory");
        picture.extents[1].bytes = 64 * 2 + 128;
        let frames = layout(&config, &picture).unwrap();
        let flaw = |written: &[(u32, u32)]| frames.flaw(&filled(written));
        assert_eq!(flaw(&[(0, 256), (128, 128)]), None);
        assert_eq!(flaw(&[(0, 256), (129, 128)]), Some(Flaw::Short));
        assert_eq!(flaw(&[(0, 256), (0, 127)]), Some(Flaw::Short));
        assert_eq!(flaw(&[(0, 256)]), Some(Flaw::Short));
    }
}
