//! What is asked of a camera, and what it makes of that.

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::{PixelFormat, Plane};
use crate::memory::select::ROW_ALIGN;
use crate::os::v4l2::{Device, Filled, Picture};
use crate::tensor::Tensor;

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
}

impl Default for CameraConfig {
    /// 640 by 480 pixels in YUYV, which most cameras have; 8 buffers.
    fn default() -> Self {
        let format = PixelFormat::Yuyv;
        CameraConfig { width: 640, height: 480, format, fps: None, buffers: 8 }
    }
}

/// What the images of a camera are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) format: PixelFormat,
    row_stride: usize,
    /// Bytes of a buffer for a whole image.
    pub(super) bytes: usize,
    /// Bytes of them up to the end of the last row.
    filled: usize,
}

impl CameraConfig {
    /// Opens a camera and sets it up. It does as it is told, or this is an error.
    pub(super) fn apply(&self, path: &Path) -> Result<(Device, Shape)> {
        let wanted = self.picture()?;
        let failed = |source| Error::Camera { path: path.into(), source };
        let device = Device::open(path).map_err(failed)?;
        let device = device.ok_or_else(|| Error::NotACamera { path: path.into() })?;
        let found = device.set_format(wanted).map_err(failed)?;
        let same = |found: &Picture| {
            (found.width, found.height, found.fourcc)
                == (wanted.width, wanted.height, wanted.fourcc)
        };
        if !same(&found) || found.planes != 1 || !found.whole {
            return Err(Error::CameraFormat {
                path: path.into(),
                asked: describe(&wanted),
                found: describe(&found),
            });
        }
        if let Some(fps) = self.fps {
            // A wish: some drivers have no say in it.
            let _ = device.set_rate(fps);
        }
        Ok((device, self.shape(found)?))
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
        let stride = self.format.min_row_stride(self.width)?.next_multiple_of(ROW_ALIGN);
        Ok(Picture {
            width,
            height,
            fourcc,
            row_stride: u32::try_from(stride).unwrap_or(0),
            bytes: 0,
            planes: 1,
            whole: true,
        })
    }

    /// The layout that the driver chose, after checking that an image fits.
    fn shape(&self, found: Picture) -> Result<Shape> {
        let size = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        let (width, height, format) = (self.width, self.height, self.format);
        let row_stride = size(found.row_stride);
        format.check_row_stride(width, row_stride)?;
        let needed = format.image_bytes(width, height, row_stride)?;
        let bytes = size(found.bytes);
        if bytes < needed {
            return Err(Error::FdTooSmall { needed, size: bytes as u64 });
        }
        let planes = format.planes(width, height, row_stride)?;
        // (No more than all of it, so this does not overflow.)
        let end = |plane: &Plane| {
            plane.offset + plane.stride * plane.rows.saturating_sub(1) + plane.row_bytes
        };
        let filled = planes.iter().map(end).max().unwrap_or(needed);
        Ok(Shape { width, height, format, row_stride, bytes, filled })
    }
}

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The driver says that its data is of no use.
    Damaged,
    /// There is less of it than of an image.
    Short,
}

impl Shape {
    /// Whether an image is in a buffer that was filled. What the driver says is not trusted to be
    /// possible.
    pub(super) fn flaw(&self, filled: &Filled) -> Option<Flaw> {
        let [offset, bytes] = [filled.offset, filled.bytes].map(|number| number as usize);
        let room = self.bytes.checked_sub(offset).is_some_and(|room| room >= self.filled);
        if filled.broken {
            Some(Flaw::Damaged)
        } else if !room || !filled.whole || bytes < self.filled {
            Some(Flaw::Short)
        } else {
            None
        }
    }

    /// The image in a buffer that was filled from `offset` on.
    pub(super) fn over(&self, bytes: &Tensor, offset: usize) -> Result<Tensor> {
        bytes.as_image((self.width, self.height), self.format, (self.row_stride, offset))
    }
}

fn describe(picture: &Picture) -> Box<str> {
    let fourcc = crate::format::FourCc::from_u32(picture.fourcc);
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

    const WHOLE: Filled = Filled {
        index: 0,
        sequence: 0,
        stamp_ns: 0,
        broken: false,
        whole: true,
        offset: 0,
        bytes: 64 * 4,
    };

    fn picture(config: &CameraConfig) -> Picture {
        Picture { row_stride: 64, bytes: 64 * 4, ..config.picture().unwrap() }
    }

    #[test]
    fn frames_that_are_not_all_there_are_found_out() {
        let config = CameraConfig {
            width: 20,
            height: 4,
            format: PixelFormat::Rgb8,
            ..CameraConfig::default()
        };
        let shape = config.shape(picture(&config)).unwrap();
        assert_eq!(shape.flaw(&WHOLE), None);
        // What lies behind the last row is nobody's business.
        assert_eq!(shape.flaw(&Filled { bytes: 64 * 3 + 60, ..WHOLE }), None);
        assert_eq!(shape.flaw(&Filled { bytes: 64 * 3 + 59, ..WHOLE }), Some(Flaw::Short));
        assert_eq!(shape.flaw(&Filled { bytes: 0, ..WHOLE }), Some(Flaw::Short));
        assert_eq!(shape.flaw(&Filled { whole: false, ..WHOLE }), Some(Flaw::Short));
        assert_eq!(shape.flaw(&Filled { broken: true, bytes: 0, ..WHOLE }), Some(Flaw::Damaged));
        // Four bytes in, it ends with the buffer; and beyond that it cannot be.
        assert_eq!(shape.flaw(&Filled { offset: 4, ..WHOLE }), None);
        for offset in [5, 64 * 4, u32::MAX] {
            assert_eq!(shape.flaw(&Filled { offset, ..WHOLE }), Some(Flaw::Short), "{offset}");
        }
    }
}
