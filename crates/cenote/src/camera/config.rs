//! The configuration of a camera, and how it is applied to a device.

use std::path::Path;

use crate::camera::frame_layout::FrameLayout;
use crate::error::{Error, Result};
use crate::memory::choose::request::ROW_ALIGN;
use crate::sys::v4l2::{Device, Extent, MAX_PLANES, Picture};
use crate::types::pixel_format::PixelFormat;
use crate::types::pixel_format::fourcc::FourCc;

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
    /// The pixel format. It must be one that V4L2 has.
    pub format: PixelFormat,
    /// Frames in a second. The driver may ignore it; `None` leaves the choice to the driver.
    pub fps: Option<u32>,
    /// The number of buffers that driver and application share, from 2 to 32.
    pub buffers: usize,
    /// Puts each plane of an image into a separate DMA-BUF, as V4L2's `NM12` and similar formats do. Drivers
    /// that have only such formats do so in any case. [`plane`](crate::Tensor::plane) returns each plane. A
    /// topic copies such an image once, so that its planes lie together.
    pub separate_planes: bool,
}

impl Default for CameraConfig {
    /// 640 by 480 pixels in YUYV, which most cameras have; 8 buffers.
    fn default() -> Self {
        let format = PixelFormat::Yuyv;
        CameraConfig {
            width: 640,
            height: 480,
            format,
            fps: None,
            buffers: 8,
            separate_planes: false,
        }
    }
}

/// V4L2's codes for formats whose planes lie in separate buffers.
const SEPARATE_PLANES: [(PixelFormat, &[u8; 4]); 4] = [
    (PixelFormat::Nv12, b"NM12"),
    (PixelFormat::Nv21, b"NM21"),
    (PixelFormat::Nv16, b"NM16"),
    (PixelFormat::I420, b"YM12"),
];

/// Who allocates the buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferOwner {
    Driver,
    /// A buffer of the caller holds all planes of an image.
    Caller,
}

impl CameraConfig {
    /// Opens a camera and sets its format. Fails if the driver does not accept the format.
    pub(crate) fn apply(&self, path: &Path, owner: BufferOwner) -> Result<(Device, FrameLayout)> {
        let candidates = self.candidates(owner)?;
        let failed = |op| move |source| Error::Camera { path: path.into(), op, source };
        let device = Device::open(path).map_err(failed("opening it"))?;
        let mut device = device.ok_or_else(|| Error::NotACamera { path: path.into() })?;
        let mut refused = None;
        for wanted in candidates {
            let found = device.set_format(wanted).map_err(failed("setting its format"))?;
            if !accepts(&found, &wanted) {
                let (asked, found) = (describe(&wanted), describe(&found));
                let path = path.into();
                // Report the first format, which is the one that the caller configured.
                refused = refused.or(Some(Error::CameraFormat { path, asked, found }));
                continue;
            }
            if let Some(fps) = self.fps {
                // An error is ignored: not every driver can set a rate.
                let _ = device.set_rate(fps);
            }
            let layout = FrameLayout::new((self.width, self.height), self.format, &found)?;
            return Ok((device, layout));
        }
        Err(refused.unwrap_or_else(|| Error::NotACamera { path: path.into() }))
    }

    /// The formats to try, in this order.
    pub(crate) fn candidates(&self, owner: BufferOwner) -> Result<Vec<Picture>> {
        let whole = self.picture()?;
        let separate = SEPARATE_PLANES.iter().find(|(format, _)| *format == self.format);
        let separate = separate
            .map(|(_, fourcc)| self.with_separate_planes(whole, FourCc::new(fourcc)))
            .transpose()?;
        let bad = |rule| Err(Error::BadConfig { field: "separate_planes", rule });
        match (self.separate_planes, owner, separate) {
            (true, BufferOwner::Caller, _) => bad("a buffer of the caller holds a whole image"),
            (true, _, None) => bad("V4L2 has no separate planes for the format"),
            (true, _, Some(separate)) => Ok(vec![separate]),
            (false, BufferOwner::Driver, Some(separate)) => Ok(vec![whole, separate]),
            (false, ..) => Ok(vec![whole]),
        }
    }

    /// The format with all planes in one buffer. Fails if a field of the configuration is invalid.
    pub(crate) fn picture(&self) -> Result<Picture> {
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

    /// The same format, with its planes in separate buffers.
    fn with_separate_planes(&self, whole: Picture, fourcc: FourCc) -> Result<Picture> {
        let planes = self.format.planes(self.width, self.height, self.wanted_stride()?)?;
        let mut extents = [Extent::default(); MAX_PLANES];
        for (extent, plane) in extents.iter_mut().zip(planes.iter()) {
            extent.row_stride = u32::try_from(plane.stride).unwrap_or(0);
        }
        let count = u32::try_from(planes.len()).unwrap_or(0);
        Ok(Picture { fourcc: fourcc.to_u32(), planes: count, extents, ..whole })
    }
}

/// Returns whether the driver has set the wanted format.
fn accepts(found: &Picture, wanted: &Picture) -> bool {
    let key = |picture: &Picture| (picture.width, picture.height, picture.fourcc, picture.planes);
    key(found) == key(wanted) && found.whole
}

/// Describes a format in an error.
fn describe(picture: &Picture) -> Box<str> {
    let fourcc = FourCc::from_u32(picture.fourcc);
    let Picture { width, height, planes, .. } = picture;
    let fields = if picture.whole { "" } else { ", every second row at a time" };
    match planes {
        1 => format!("{width}x{height} {fourcc}{fields}").into(),
        _ => format!("{width}x{height} {fourcc} in {planes} buffers{fields}").into(),
    }
}
