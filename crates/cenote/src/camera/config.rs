//! What is asked of a camera, and what it makes of that.

use std::path::Path;

use crate::error::{Error, Result};
use crate::memory::request::ROW_ALIGN;
use crate::sys::v4l2::{Device, Extent, Filled, MAX_PLANES, Picture, Written};
use crate::tensor::Tensor;
use crate::types::pixel_format::PixelFormat;
use crate::types::pixel_format::fourcc::FourCc;
use crate::types::pixel_format::geometry::Plane;

/// How a camera captures.
///
/// ```
/// use cenote::{CameraConfig, PixelFormat};
///
/// let config = CameraConfig { width: 1920, height: 1080, ..CameraConfig::default() };
/// assert_eq!((config.format, config.buffers), (PixelFormat::Yuyv, 8));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CameraConfig {
    /// The width in pixels.
    pub width: usize,
    /// The height in pixels.
    pub height: usize,
    /// How pixels are stored. It must be one that V4L2 knows.
    pub format: PixelFormat,
    /// Frames in a second. A wish; `None` leaves it to the driver.
    pub fps: Option<u32>,
    /// Buffers that go between driver and application, from 2 to 32.
    pub buffers: usize,
    /// Have each plane of an image in a DMA-BUF of its own, as V4L2's `NM12` and the like do. Drivers that
    /// have nothing else do so anyway. [`plane`](Tensor::plane) reaches each; a topic copies such an image
    /// once, to where its planes lie together.
    pub apart: bool,
}

impl Default for CameraConfig {
    /// 640 by 480 pixels in YUYV, which most cameras have; 8 buffers.
    fn default() -> Self {
        let format = PixelFormat::Yuyv;
        CameraConfig { width: 640, height: 480, format, fps: None, buffers: 8, apart: false }
    }
}

/// What V4L2 calls formats whose planes lie in memory of their own.
const APART: [(PixelFormat, &[u8; 4]); 4] = [
    (PixelFormat::Nv12, b"NM12"),
    (PixelFormat::Nv21, b"NM21"),
    (PixelFormat::Nv16, b"NM16"),
    (PixelFormat::I420, b"YM12"),
];

/// What the images of a camera are.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: PixelFormat,
    row_stride: usize,
    /// The pieces of memory that an image lies in: one, or one for each plane.
    pub(crate) parts: Vec<Part>,
}

/// A piece of memory for an image, or for a plane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// All bytes of it.
    pub(crate) bytes: usize,
    /// Bytes of them up to the end of the last row.
    filled: usize,
    /// The plane in it; the first of an image's.
    plane: Plane,
}

/// Whose memory it is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Drivers,
    /// Buffers of the caller's have all planes of an image.
    Callers,
}

impl CameraConfig {
    /// Opens a camera and sets it up. It does as it is told, or this is an error.
    pub(crate) fn apply(&self, path: &Path, whose: Whose) -> Result<(Device, Shape)> {
        let ways = self.ways(whose)?;
        let failed = |op| move |source| Error::Camera { path: path.into(), op, source };
        let device = Device::open(path).map_err(failed("opening it"))?;
        let mut device = device.ok_or_else(|| Error::NotACamera { path: path.into() })?;
        let mut refused = None;
        for wanted in ways {
            let found = device.set_format(wanted).map_err(failed("setting its format"))?;
            if !answers(&found, &wanted) {
                let (asked, found) = (describe(&wanted), describe(&found));
                let path = path.into();
                // Of what was asked for in so many words.
                refused = refused.or(Some(Error::CameraFormat { path, asked, found }));
                continue;
            }
            if let Some(fps) = self.fps {
                // A wish: some drivers have no say in it.
                let _ = device.set_rate(fps);
            }
            let shape = self.shape(&found)?;
            return Ok((device, shape));
        }
        Err(refused.unwrap_or_else(|| Error::NotACamera { path: path.into() }))
    }

    /// What to ask a driver for, in this order.
    fn ways(&self, whose: Whose) -> Result<Vec<Picture>> {
        let whole = self.picture()?;
        let apart = APART.iter().find(|(format, _)| *format == self.format);
        let apart = apart.map(|(_, fourcc)| self.apart(whole, FourCc::new(fourcc))).transpose()?;
        let bad = |rule| Err(Error::BadConfig { field: "apart", rule });
        match (self.apart, whose, apart) {
            (true, Whose::Callers, _) => bad("a buffer of the caller's holds a whole image"),
            (true, _, None) => bad("V4L2 has no such planes for the format"),
            (true, _, Some(apart)) => Ok(vec![apart]),
            (false, Whose::Drivers, Some(apart)) => Ok(vec![whole, apart]),
            (false, ..) => Ok(vec![whole]),
        }
    }

    fn picture(&self) -> Result<Picture> {
        let bad = |field, rule| Error::BadConfig { field, rule };
        if !(2..=32).contains(&self.buffers) {
            return Err(bad("buffers", "it must be from 2 to 32"));
        }
        let fourcc = self.format.v4l2_fourcc();
        let fourcc = fourcc.ok_or(bad("format", "V4L2 has no such format"))?.to_u32();
        let small = |value: usize, field| {
            let rule = "it must be from 1 to 65536";
            let value = u32::try_from(value).ok().filter(|value| (1..=65536).contains(value));
            value.ok_or(bad(field, rule))
        };
        let (width, height) = (small(self.width, "width")?, small(self.height, "height")?);
        let mut extents = [Extent::default(); MAX_PLANES];
        extents[0].row_stride = u32::try_from(self.wanted_stride()?).unwrap_or(0);
        Ok(Picture { width, height, fourcc, planes: 1, extents, whole: true })
    }

    fn wanted_stride(&self) -> Result<usize> {
        Ok(self.format.min_row_stride(self.width)?.next_multiple_of(ROW_ALIGN))
    }

    /// The same picture, with its planes in memory of their own.
    fn apart(&self, whole: Picture, fourcc: FourCc) -> Result<Picture> {
        let planes = self.format.planes(self.width, self.height, self.wanted_stride()?)?;
        let mut extents = [Extent::default(); MAX_PLANES];
        for (extent, plane) in extents.iter_mut().zip(planes.iter()) {
            extent.row_stride = u32::try_from(plane.stride).unwrap_or(0);
        }
        let count = u32::try_from(planes.len()).unwrap_or(0);
        Ok(Picture { fourcc: fourcc.to_u32(), planes: count, extents, ..whole })
    }

    /// The layout that the driver chose, after checking that an image fits.
    fn shape(&self, found: &Picture) -> Result<Shape> {
        let (width, height, format) = (self.width, self.height, self.format);
        let row_stride = size(found.extents[0].row_stride);
        let (row_stride, parts) = if found.planes == 1 {
            format.check_row_stride(width, row_stride)?;
            let planes = format.planes(width, height, row_stride)?;
            let filled = planes.iter().map(end).max().unwrap_or(0);
            let needed = format.image_bytes(width, height, row_stride)?;
            (row_stride, vec![part(&found.extents[0], needed, filled, &planes[0])?])
        } else {
            let tight = format.min_row_stride(width)?;
            let planes = format.planes(width, height, tight)?;
            let parts = planes.iter().zip(&found.extents).map(|(plane, extent)| {
                let stride = size(extent.row_stride);
                if stride < plane.row_bytes {
                    let (min, multiple) = (plane.row_bytes, 1);
                    let (given, format) = (stride, format.name());
                    return Err(Error::BadRowStride { given, min, multiple, width, format });
                }
                let plane = Plane { offset: 0, stride, ..*plane };
                part(extent, end(&plane), end(&plane), &plane)
            });
            (tight, parts.collect::<Result<_>>()?)
        };
        Ok(Shape { width, height, format, row_stride, parts })
    }
}

/// Whether a driver does what it was asked for.
fn answers(found: &Picture, wanted: &Picture) -> bool {
    let about = |picture: &Picture| (picture.width, picture.height, picture.fourcc, picture.planes);
    about(found) == about(wanted) && found.whole
}

fn size(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Where the last row of a plane ends. (It lies in an image whose bytes could be counted.)
fn end(plane: &Plane) -> usize {
    let rows = plane.stride.saturating_mul(plane.rows.saturating_sub(1));
    plane.offset.saturating_add(rows).saturating_add(plane.row_bytes)
}

/// A piece of memory, if it has what is needed.
fn part(extent: &Extent, needed: usize, filled: usize, plane: &Plane) -> Result<Part> {
    let bytes = size(extent.bytes);
    if bytes < needed {
        return Err(Error::FdTooSmall { needed, size: bytes as u64 });
    }
    Ok(Part { bytes, filled, plane: *plane })
}

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The driver says that its data is of no use.
    Damaged,
    /// There is less of it than of an image.
    Short,
}

impl Part {
    /// Whether all of it was written. What the driver says is not trusted to be possible.
    fn is_there(&self, written: &Written) -> bool {
        let (offset, bytes) = (size(written.offset), size(written.bytes));
        let room = self.bytes.checked_sub(offset).is_some_and(|room| room >= self.filled);
        room && bytes >= self.filled
    }
}

impl Shape {
    /// Whether an image is in a buffer that was filled.
    pub(crate) fn flaw(&self, filled: &Filled) -> Option<Flaw> {
        if filled.broken {
            return Some(Flaw::Damaged);
        }
        let mut parts = self.parts.iter().zip(&filled.written);
        let is_there = filled.whole && parts.all(|(part, written)| part.is_there(written));
        (!is_there).then_some(Flaw::Short)
    }

    /// The image in a buffer that was filled, given its pieces of memory.
    pub(crate) fn over(&self, memory: &[Tensor], filled: &Filled) -> Result<Tensor> {
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

fn describe(picture: &Picture) -> Box<str> {
    let fourcc = FourCc::from_u32(picture.fourcc);
    let Picture { width, height, planes, .. } = picture;
    let fields = if picture.whole { "" } else { ", every second row at a time" };
    match planes {
        1 => format!("{width}x{height} {fourcc}{fields}").into(),
        _ => format!("{width}x{height} {fourcc} in {planes} buffers{fields}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(written: &[(u32, u32)]) -> Filled {
        let mut all = [Written::default(); MAX_PLANES];
        for (to, &(offset, bytes)) in all.iter_mut().zip(written) {
            *to = Written { offset, bytes };
        }
        let (index, sequence, stamp_ns) = (0, 0, 0);
        Filled { index, sequence, stamp_ns, broken: false, whole: true, written: all }
    }

    #[test]
    fn frames_that_are_not_all_there_are_found_out() {
        let config = CameraConfig {
            width: 20,
            height: 4,
            format: PixelFormat::Rgb8,
            ..CameraConfig::default()
        };
        let mut picture = config.picture().unwrap();
        picture.extents[0] = Extent { row_stride: 64, bytes: 64 * 4 };
        let shape = config.shape(&picture).unwrap();
        let flaw = |offset, bytes| shape.flaw(&filled(&[(offset, bytes)]));
        assert_eq!(flaw(0, 64 * 4), None);
        // What lies behind the last row is nobody's business.
        assert_eq!(flaw(0, 64 * 3 + 60), None);
        assert_eq!(flaw(0, 64 * 3 + 59), Some(Flaw::Short));
        assert_eq!(flaw(0, 0), Some(Flaw::Short));
        let half = Filled { whole: false, ..filled(&[(0, 64 * 4)]) };
        assert_eq!(shape.flaw(&half), Some(Flaw::Short));
        let broken = Filled { broken: true, ..filled(&[]) };
        assert_eq!(shape.flaw(&broken), Some(Flaw::Damaged));
        // Four bytes in, it ends with the buffer; and beyond that it cannot be.
        assert_eq!(flaw(4, 64 * 4), None);
        for offset in [5, 64 * 4, u32::MAX] {
            assert_eq!(flaw(offset, 64 * 4), Some(Flaw::Short), "{offset}");
        }
    }

    #[test]
    fn each_plane_has_to_be_there() {
        let config = CameraConfig {
            width: 64,
            height: 4,
            format: PixelFormat::Nv12,
            apart: true,
            ..CameraConfig::default()
        };
        let mut picture = config.ways(Whose::Drivers).unwrap()[0];
        assert_eq!((picture.planes, picture.fourcc), (2, FourCc::new(b"NM12").to_u32()));
        assert!(config.ways(Whose::Callers).is_err());
        picture.extents[0].bytes = 64 * 4;
        assert!(config.shape(&picture).is_err(), "the second plane has no memory");
        picture.extents[1].bytes = 64 * 2 + 128;
        let shape = config.shape(&picture).unwrap();
        let flaw = |written: &[(u32, u32)]| shape.flaw(&filled(written));
        assert_eq!(flaw(&[(0, 256), (128, 128)]), None);
        assert_eq!(flaw(&[(0, 256), (129, 128)]), Some(Flaw::Short));
        assert_eq!(flaw(&[(0, 256), (0, 127)]), Some(Flaw::Short));
        assert_eq!(flaw(&[(0, 256)]), Some(Flaw::Short));
    }
}
