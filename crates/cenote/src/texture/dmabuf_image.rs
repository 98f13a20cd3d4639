//! Describes an image in DMA-BUFs, and checks it before EGL reads it.

use crate::error::{Error, GlError, Result};
use crate::gl::driver::egl::DmaBufAttributes;
use crate::gl::texture_cache::ViewKey;
use crate::sys::memfd;
use crate::tensor::image::plane_descriptor::PlaneDescriptor;
use crate::types::pixel_format::PixelFormat;
use crate::types::pixel_format::fourcc::FourCc;

/// DRM's modifier for plain rows, which is the layout of memory without a modifier.
const LINEAR: u64 = 0;

/// DRM's modifier for an unknown layout, the same as no modifier.
const INVALID: u64 = 0x00ff_ffff_ffff_ffff;

/// An image in DMA-BUFs of a camera, a video decoder or a dma-heap.
///
/// ```no_run
/// use std::os::fd::OwnedFd;
/// use cenote::{DmaBufImage, FourCc, GlContext, GlTexture, PlaneDescriptor};
///
/// /// A frame of 1080p RGBA that a camera has written.
/// fn texture(gl: &GlContext, fd: &OwnedFd) -> cenote::Result<GlTexture> {
///     let frame = DmaBufImage::new(1920, 1080, FourCc::new(b"AB24"))
///         .plane(PlaneDescriptor::new(fd)?.with_stride(1920 * 4));
///     gl.import(&frame)
/// }
/// ```
#[derive(Debug)]
#[must_use]
pub struct DmaBufImage {
    pub(crate) width: usize,
    pub(crate) height: usize,
    fourcc: FourCc,
    modifier: Option<u64>,
    planes: Vec<PlaneDescriptor>,
}

impl DmaBufImage {
    /// Describes an image without planes yet. `fourcc` is DRM's code, as
    /// [`drm_fourcc`](PixelFormat::drm_fourcc) returns it.
    pub fn new(width: usize, height: usize, fourcc: FourCc) -> DmaBufImage {
        DmaBufImage { width, height, fourcc, modifier: None, planes: Vec::new() }
    }

    /// Adds the next plane, which must have a stride.
    pub fn plane(mut self, plane: PlaneDescriptor) -> DmaBufImage {
        self.planes.push(plane);
        self
    }

    /// Sets the DRM modifier, which says how the memory is tiled or compressed. Without one, or with
    /// `DRM_FORMAT_MOD_INVALID`, the image lies in plain rows.
    pub fn modifier(mut self, modifier: u64) -> DmaBufImage {
        self.modifier = Some(modifier).filter(|&modifier| modifier != INVALID);
        self
    }

    /// Returns EGL's attributes for the image. Fails for a description that not every driver refuses.
    pub(crate) fn attributes(&self) -> Result<DmaBufAttributes> {
        let bad = |rule| Error::Gl(GlError::BadDmaBuf { rule });
        let fit = || bad("a number of it does not fit 31 bits");
        if self.width == 0 || self.height == 0 {
            return Err(bad("it has no pixels"));
        }
        if self.planes.is_empty() {
            return Err(bad("it has no plane"));
        }
        let fourcc = self.fourcc.to_u32();
        let mut attributes =
            DmaBufAttributes::new(self.width, self.height, fourcc).ok_or_else(fit)?;
        for (index, plane) in self.planes.iter().enumerate() {
            let offset = plane.offset().unwrap_or(0);
            let stride = plane.stride().ok_or_else(|| bad("a plane has no stride"))?;
            if offset as u64 >= size(plane)? {
                return Err(bad("a plane begins beyond the end of its buffer"));
            }
            if index > 2 {
                return Err(bad("it has more than three planes"));
            }
            let fd = plane.fd().try_clone_to_owned();
            let fd = fd.map_err(|source| Error::os("duplicating a file descriptor", source))?;
            attributes.plane(index, fd, (offset, stride), self.modifier).ok_or_else(fit)?;
        }
        self.check_bounds()?;
        Ok(attributes)
    }

    /// Identifies the image among those in the same buffer.
    pub(crate) fn view_key(&self) -> ViewKey {
        let DmaBufImage { width, height, fourcc, modifier, .. } = *self;
        let number = |given: Option<usize>| given.map_or(u64::MAX, |given| given as u64);
        let numbers = |plane: &PlaneDescriptor| [0, number(plane.offset()), number(plane.stride())];
        view_key((width, height), fourcc, modifier, self.planes.iter().map(numbers))
    }

    /// Fails if a plane exceeds its buffer: some drivers would read beyond the end. The layout of a tiled
    /// image is known only to its driver, so that is not checked.
    fn check_bounds(&self) -> Result<()> {
        let bad = |rule| Error::Gl(GlError::BadDmaBuf { rule });
        if self.modifier.is_some_and(|modifier| modifier != LINEAR) {
            return Ok(());
        }
        let Some(format) = PixelFormat::from_drm(self.fourcc) else {
            return Err(bad("its format is none of those that are known to lie in rows"));
        };
        if format.plane_count() != self.planes.len() {
            let (expected, given) = (format.plane_count(), self.planes.len());
            return Err(Error::PlaneCount { format: format.name(), expected, given });
        }
        let tight = format.min_row_stride(self.width)?;
        let shapes = format.planes(self.width, self.height, tight)?;
        for (plane, shape) in self.planes.iter().zip(shapes.iter()) {
            let stride = plane.stride().unwrap_or(0);
            if stride < shape.row_bytes {
                return Err(bad("a stride is shorter than the row"));
            }
            let overrun = || bad("a plane reaches beyond the end of its buffer");
            let rows = stride.checked_mul(shape.rows - 1);
            let end = rows
                .and_then(|rows| rows.checked_add(shape.row_bytes))
                .and_then(|bytes| bytes.checked_add(plane.offset().unwrap_or(0)))
                .ok_or_else(overrun)?;
            if end as u64 > size(plane)? {
                return Err(overrun());
            }
        }
        Ok(())
    }
}

/// Identifies an image among those in the same buffer: by its size, format and modifier, and for each
/// plane its buffer (0 if it is that same buffer), offset and stride.
pub(crate) fn view_key(
    (width, height): (usize, usize),
    fourcc: FourCc,
    modifier: Option<u64>,
    planes: impl Iterator<Item = [u64; 3]>,
) -> ViewKey {
    let head = [width as u64, height as u64, fourcc.to_u32().into(), modifier.unwrap_or(u64::MAX)];
    head.into_iter().chain(planes.flatten()).collect()
}

/// Returns the size in bytes of the DMA-BUF that a plane is in. Fails if it is no DMA-BUF.
fn size(plane: &PlaneDescriptor) -> Result<u64> {
    let facts = memfd::examine(plane.fd()).map_err(|source| Error::os("fstat", source))?;
    if facts.dma_buf {
        return Ok(facts.size);
    }
    Err(GlError::BadDmaBuf { rule: "its file descriptor is no DMA-BUF" }.into())
}
