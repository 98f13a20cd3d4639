//! Tensors with a pixel format.
//!
//! Only the format is stored. Size, row stride and plane offset are computed from the layout, so they cannot
//! contradict it.
//!
//! The planes of an image usually follow each other in one buffer, and the tensor covers all of them. Planes
//! that were imported from several buffers, or cut out by a region of interest, do not: they are *far planes*.
//! Then the tensor itself shows plane 0, and [`Tensor::plane`] returns each plane.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::tensor::image::geometry::{
    check_packed, check_pixel_group, image_layout, no_such_plane, plane_at, plane_layout,
    plane_layouts, row_axis, same_elements, with_usable_row_stride,
};
use crate::tensor::tensor::Tensor;
use crate::types::layout::Layout;
use crate::types::pixel_format::PixelFormat;
use crate::types::pixel_format::geometry::Plane;

impl Tensor {
    /// The pixel format, if one was set.
    pub fn format(&self) -> Option<PixelFormat> {
        self.format
    }

    /// Makes the tensor an image of this format. Fails unless shape, dtype and strides match it.
    ///
    /// ```
    /// use cenote::{DType, PixelFormat, Tensor};
    ///
    /// let mut tensor = Tensor::new(&[480, 640, 3], DType::U8)?;
    /// tensor.set_format(PixelFormat::Rgb8)?;
    /// assert_eq!(tensor.image_size(), Some((640, 480)));
    /// assert!(tensor.set_format(PixelFormat::Rgba8).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn set_format(&mut self, format: PixelFormat) -> Result<()> {
        if self.far_planes.is_some() && format.plane_count() > 1 {
            let planes = (0..self.plane_count()).map(|plane| self.plane(plane));
            check_far_planes(format, &planes.collect::<Result<Vec<_>>>()?)?;
            self.format = Some(format);
            return Ok(());
        }
        if self.dtype != format.dtype() {
            return Err(Error::FormatDType {
                format: format.name(),
                expected: format.dtype().name(),
                found: self.dtype.name(),
            });
        }
        let layout = with_usable_row_stride(format, &self.layout)?;
        self.check_image(format, &layout)?;
        self.layout = layout;
        self.format = Some(format);
        self.far_planes = None;
        Ok(())
    }

    /// [`set_format`](Tensor::set_format), for chaining.
    pub fn with_format(mut self, format: PixelFormat) -> Result<Tensor> {
        self.set_format(format)?;
        Ok(self)
    }

    /// Width and height in pixels, if the tensor has a format.
    pub fn image_size(&self) -> Option<(usize, usize)> {
        let format = self.format?;
        if self.far_planes.is_some() {
            return Some((self.shape()[1], self.shape()[0]));
        }
        format.size_of(self.shape()).ok()
    }

    /// The bytes from one row of the image to the next, or `None` if rows are tightly packed (or there is no
    /// format). [`effective_row_stride`](Tensor::effective_row_stride) returns the number in both cases.
    ///
    /// ```
    /// use cenote::{PixelFormat, Tensor};
    ///
    /// let packed = Tensor::image(100, 50, PixelFormat::Rgb8)?;
    /// assert_eq!((packed.row_stride(), packed.effective_row_stride()), (None, Some(300)));
    ///
    /// let padded = Tensor::options().row_alignment(64).image(100, 50, PixelFormat::Rgb8)?;
    /// assert_eq!((padded.row_stride(), padded.effective_row_stride()), (Some(320), Some(320)));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn row_stride(&self) -> Option<usize> {
        let (width, _) = self.image_size()?;
        let packed = self.packed_row(width);
        self.effective_row_stride().filter(|&stride| stride != packed)
    }

    /// The bytes from one row of the image to the next, padded or not. `None` without a format.
    pub fn effective_row_stride(&self) -> Option<usize> {
        let format = self.format?;
        let axis = if self.far_planes.is_some() { 0 } else { row_axis(format) };
        usize::try_from(self.strides()[axis]).ok()
    }

    /// The bytes of the elements of a row.
    fn packed_row(&self, width: usize) -> usize {
        let channels = if self.ndim() == 3 && !self.is_planar() { self.shape()[2] } else { 1 };
        width * channels * self.dtype.size()
    }

    /// Returns whether the colour planes are separate.
    fn is_planar(&self) -> bool {
        self.format.is_some_and(|format| row_axis(format) == 1)
    }

    /// Sets the bytes from one row to the next, for foreign memory with padded rows. No byte is moved. Fails
    /// without a format, if a row does not fit, or if the rows would reach beyond the end of the buffer.
    pub fn set_row_stride(&mut self, stride: usize) -> Result<()> {
        let format = self.format_for("set_row_stride")?;
        let (width, height) = format.size_of(self.shape())?;
        format.check_row_stride(width, stride)?;
        let layout = self.image_layout(format, height, stride)?;
        self.check_image(format, &layout)?;
        self.layout = layout;
        Ok(())
    }

    /// [`set_row_stride`](Tensor::set_row_stride), for chaining.
    pub fn with_row_stride(mut self, stride: usize) -> Result<Tensor> {
        self.set_row_stride(stride)?;
        Ok(self)
    }

    /// The offset of the first element in the buffer, in bytes. `None` if it is 0.
    pub fn plane_offset(&self) -> Option<usize> {
        Some(self.layout.offset()).filter(|&offset| offset != 0)
    }

    /// Sets the offset of the first element in the buffer, in bytes. No byte is moved. Fails if the tensor would
    /// reach beyond the end of the buffer.
    pub fn set_plane_offset(&mut self, offset: usize) -> Result<()> {
        let layout = self.layout.clone().with_offset(offset)?;
        match self.format {
            Some(_) if self.far_planes.is_some() => {
                return Err(Error::FarPlanes { op: "set_plane_offset" });
            }
            Some(format) => self.check_image(format, &layout)?,
            None => layout.fits(self.buffer.storage().len())?,
        }
        self.layout = layout;
        Ok(())
    }

    /// [`set_plane_offset`](Tensor::set_plane_offset), for chaining.
    pub fn with_plane_offset(mut self, offset: usize) -> Result<Tensor> {
        self.set_plane_offset(offset)?;
        Ok(self)
    }

    /// The number of planes: 1 without a format.
    pub fn plane_count(&self) -> usize {
        self.format.map_or(1, PixelFormat::plane_count)
    }

    /// Returns one plane of the image, as a view of rows of samples without a format: `[rows, width]`, or `[rows,
    /// width, channels]` if samples have several values. Fails if there is no such plane.
    ///
    /// Plane 0 of an image with one plane is the image itself.
    ///
    /// ```
    /// use cenote::{PixelFormat, Tensor};
    ///
    /// let frame = Tensor::image(640, 480, PixelFormat::Nv12)?;
    /// assert_eq!(frame.plane(0)?.shape(), [480, 640]);
    /// assert_eq!(frame.plane(1)?.shape(), [240, 320, 2]); // U and V, interleaved
    /// assert!(frame.plane(2).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn plane(&self, index: usize) -> Result<Tensor> {
        let count = self.plane_count();
        if index >= count {
            return Err(no_such_plane(self.format, index));
        }
        if count == 1 { Ok(self.with_layout(self.layout.clone())) } else { self.samples(index) }
    }

    /// Returns all samples of one plane. They can be more than the elements of a packed image: a YUYV row of odd
    /// width ends in the middle of a pair of pixels.
    pub(crate) fn samples(&self, plane: usize) -> Result<Tensor> {
        match (&self.far_planes, self.format) {
            (Some(far), _) if plane > 0 => Ok(far[plane - 1].clone()),
            (None, Some(format)) => Ok(self.with_layout(plane_at(format, &self.layout, plane)?)),
            _ => Ok(self.with_layout(self.layout.clone())),
        }
    }

    /// Returns a rectangle of an image, or of the first two axes of any tensor, without a copy. Fails if it is not
    /// inside.
    ///
    /// The view of an image keeps its format. `x` and `y` must not split a group of pixels that share samples (2x2
    /// for NV12 and Bayer, 2x1 for YUYV).
    ///
    /// ```
    /// use cenote::{PixelFormat, Tensor};
    ///
    /// let frame = Tensor::image(1920, 1080, PixelFormat::Nv12)?;
    /// let face = frame.roi(600, 200, 256, 256)?;
    /// assert_eq!(face.image_size(), Some((256, 256)));
    /// assert_eq!(face.plane(1)?.shape(), [128, 128, 2]);
    /// assert!(frame.roi(601, 200, 256, 256).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn roi(&self, x: usize, y: usize, width: usize, height: usize) -> Result<Tensor> {
        let Some(format) = self.format else {
            return Ok(self.with_layout(self.layout.roi(x, y, width, height)?));
        };
        check_pixel_group(format, x, y)?;
        if format.plane_count() == 1 {
            return self.with_layout(self.layout.roi(x, y, width, height)?).with_format(format);
        }
        let cut = |index: usize| {
            let (h, v) = if index == 0 { (1, 1) } else { format.subsampling() };
            let plane = self.plane(index)?;
            let layout = plane.layout.roi(x / h, y / v, width.div_ceil(h), height.div_ceil(v))?;
            Ok(plane.with_layout(layout))
        };
        let planes = (0..format.plane_count()).map(cut).collect::<Result<Vec<_>>>()?;
        Tensor::from_far_planes(format, planes)
    }

    /// Makes an image of planes in any buffers. Fails unless their number, and the samples of each, are those of
    /// the format.
    pub(crate) fn from_far_planes(format: PixelFormat, mut planes: Vec<Tensor>) -> Result<Tensor> {
        check_far_planes(format, &planes)?;
        let far = planes.split_off(1);
        let Some(mut first) = planes.pop() else {
            let expected = format.plane_count();
            return Err(Error::PlaneCount { format: format.name(), expected, given: 0 });
        };
        first.format = Some(format);
        first.far_planes = Some(Arc::from(far));
        Ok(first)
    }

    /// Returns the format. Fails if there is none, or the planes do not follow each other.
    fn format_for(&self, op: &'static str) -> Result<PixelFormat> {
        match self.format {
            None => Err(Error::NoFormat { op }),
            Some(_) if self.far_planes.is_some() => Err(Error::FarPlanes { op }),
            Some(format) => Ok(format),
        }
    }

    /// The layout of this image with another row stride.
    fn image_layout(&self, format: PixelFormat, height: usize, stride: usize) -> Result<Layout> {
        image_layout(format, self.shape(), height, stride, self.layout.offset())
    }

    /// Fails unless `layout` is an image of this format whose planes all lie in the buffer.
    fn check_image(&self, format: PixelFormat, layout: &Layout) -> Result<()> {
        let buffer = self.buffer.storage().len();
        layout.fits(buffer)?;
        // The usual case, without an allocation: the one plane is the tensor itself.
        if format.lies_as_shaped() {
            return check_packed(format, layout);
        }
        for plane in plane_layouts(format, layout)? {
            plane.fits(buffer)?;
        }
        Ok(())
    }
}

/// Fails unless these planes are those of an image of this format.
fn check_far_planes(format: PixelFormat, planes: &[Tensor]) -> Result<()> {
    let Some(&[height, width]) = planes.first().map(Tensor::shape) else {
        return Err(Error::FormatShape {
            format: format.name(),
            shape: planes.first().map_or(&[][..], Tensor::shape).into(),
            expected: "[height, width] for plane 0",
        });
    };
    let expected_planes = format.planes(width, height, format.min_row_stride(width)?)?;
    if expected_planes.len() != planes.len() {
        let (expected, given) = (expected_planes.len(), planes.len());
        return Err(Error::PlaneCount { format: format.name(), expected, given });
    }
    let mut pairs = expected_planes.iter().zip(planes);
    pairs.try_for_each(|(expected, plane)| check_far_plane(format, expected, plane))
}

fn check_far_plane(format: PixelFormat, expected: &Plane, plane: &Tensor) -> Result<()> {
    if plane.dtype != format.dtype() {
        return Err(Error::FormatDType {
            format: format.name(),
            expected: format.dtype().name(),
            found: plane.dtype.name(),
        });
    }
    let stride = plane.strides().first().and_then(|&stride| usize::try_from(stride).ok());
    let expected = Plane { stride: stride.unwrap_or(0), offset: 0, ..*expected };
    let regular = plane_layout(&expected, 0, format.dtype().size())?;
    if expected.stride >= expected.row_bytes
        && regular.shape() == plane.shape()
        && same_elements(&regular, &plane.layout)
    {
        return Ok(());
    }
    Err(Error::FormatLayout {
        format: format.name(),
        shape: plane.shape().into(),
        strides: plane.strides().into(),
    })
}
