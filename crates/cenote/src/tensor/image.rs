//! Images: what a pixel format says about a tensor.
//!
//! Nothing is stored but the format. Size, row stride and plane offset are read off the layout,
//! so they cannot disagree with it.
//!
//! The planes of an image usually follow each other in one buffer, and the tensor covers them
//! all. Planes that were imported from several places, or cut out by a region of interest, do
//! not; then the tensor itself shows plane 0, and [`Tensor::plane`] reaches every one.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::types::layout::Layout;
use crate::types::pixel_format::geometry::Plane;
use crate::types::pixel_format::{FormatKind, PixelFormat};

impl Tensor {
    /// The pixel format, if one was set.
    pub fn format(&self) -> Option<PixelFormat> {
        self.format
    }

    /// Says that the tensor is an image of this format, after checking that shape, dtype and
    /// strides agree.
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

    /// The bytes from one row of the image to the next, or `None` where rows are tightly packed
    /// (or there is no format). To do arithmetic with, take
    /// [`effective_row_stride`](Tensor::effective_row_stride).
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

    /// The bytes of a row's elements, as the shape counts them.
    fn packed_row(&self, width: usize) -> usize {
        let channels = if self.ndim() == 3 && !self.is_planar() { self.shape()[2] } else { 1 };
        width * channels * self.dtype.size()
    }

    fn is_planar(&self) -> bool {
        self.format.is_some_and(|format| row_axis(format) == 1)
    }

    /// Says how many bytes lie between the starts of two rows, for memory that came from elsewhere
    /// with padded rows. The format must have been set. An error if a row does not fit, or if the
    /// rows would then reach beyond the buffer. No byte is moved.
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

    /// Where in its buffer the first element lies, in bytes. `None` at the very start.
    pub fn plane_offset(&self) -> Option<usize> {
        Some(self.layout.offset()).filter(|&offset| offset != 0)
    }

    /// Moves the tensor to another place in its buffer: its first element will lie `offset` bytes
    /// from the start.
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

    /// One plane of the image, as a view of rows of samples, without a format: `[rows, width]`, or
    /// `[rows, width, channels]` where samples have several values.
    ///
    /// An image with one plane is its own plane 0.
    ///
    /// ```
    /// use cenote::{PixelFormat, Tensor};
    ///
    /// let frame = Tensor::image(640, 480, PixelFormat::Nv12)?;
    /// assert_eq!(frame.plane(0)?.shape(), [480, 640]);
    /// assert_eq!(frame.plane(1)?.shape(), [240, 320, 2]); // U and V, side by side
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

    /// All samples of one plane. They can be more than the elements of a packed image: an odd row
    /// of YUYV ends in the middle of a pair of pixels.
    pub(crate) fn samples(&self, plane: usize) -> Result<Tensor> {
        match (&self.far_planes, self.format) {
            (Some(far), _) if plane > 0 => Ok(far[plane - 1].clone()),
            (None, Some(format)) => Ok(self.with_layout(plane_at(format, &self.layout, plane)?)),
            _ => Ok(self.with_layout(self.layout.clone())),
        }
    }

    /// A rectangle of an image, or of the first two axes of any tensor.
    ///
    /// The view of an image keeps its format. `x` and `y` must not split a group of pixels that
    /// share samples (2x2 for NV12 and Bayer, 2x1 for YUYV).
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

    /// An image of planes that lie anywhere, after checking that there are as many as the format
    /// has, and that each is rows of the samples that the format puts there.
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

    /// The format, for calls that need one and all planes in their regular places.
    fn format_for(&self, op: &'static str) -> Result<PixelFormat> {
        match self.format {
            None => Err(Error::NoFormat { op }),
            Some(_) if self.far_planes.is_some() => Err(Error::FarPlanes { op }),
            Some(format) => Ok(format),
        }
    }

    /// This tensor's shape and place with another row stride.
    fn image_layout(&self, format: PixelFormat, height: usize, stride: usize) -> Result<Layout> {
        image_layout(format, self.shape(), height, stride, self.layout.offset())
    }

    /// Checks that `layout` is an image of this format, and that every plane lies in the buffer.
    fn check_image(&self, format: PixelFormat, layout: &Layout) -> Result<()> {
        let buffer = self.buffer.storage().len();
        layout.fits(buffer)?;
        // The usual case, quickly: the one plane is the tensor itself.
        if format.lies_as_shaped() {
            return check_packed(format, layout);
        }
        for plane in plane_layouts(format, layout)? {
            plane.fits(buffer)?;
        }
        Ok(())
    }
}

/// The layout of one plane of a whole image, which was checked to be one.
pub(crate) fn plane_at(format: PixelFormat, layout: &Layout, index: usize) -> Result<Layout> {
    let (width, height) = format.size_of(layout.shape())?;
    let stride = row_stride(format, layout)?;
    let planes = format.planes(width, height, stride)?;
    let plane = planes.get(index).ok_or_else(|| no_such_plane(Some(format), index))?;
    plane_layout(plane, layout.offset(), layout.item_size())
}

/// Checks that `layout` is rows of pixels that lie side by side.
fn check_packed(format: PixelFormat, layout: &Layout) -> Result<()> {
    let (width, _) = format.size_of(layout.shape())?;
    let stride = row_stride(format, layout)?;
    format.check_row_stride(width, stride)?;
    let item = layout.item_size();
    let expected = [stride, format.channels() * item, item];
    let axes = layout.shape().iter().zip(layout.strides());
    let packed = |((&len, &found), &expected): ((&usize, &isize), &usize)| {
        len == 1 || usize::try_from(found) == Ok(expected)
    };
    if axes.zip(&expected).all(packed) { Ok(()) } else { Err(not_rows(format, layout)) }
}

fn row_stride(format: PixelFormat, layout: &Layout) -> Result<usize> {
    let stride = layout.strides()[row_axis(format)];
    usize::try_from(stride).map_err(|_| not_rows(format, layout))
}

fn not_rows(format: PixelFormat, layout: &Layout) -> Error {
    Error::FormatLayout {
        format: format.name(),
        shape: layout.shape().into(),
        strides: layout.strides().into(),
    }
}

pub(crate) fn no_such_plane(format: Option<PixelFormat>, index: usize) -> Error {
    let planes = format.map_or(1, PixelFormat::plane_count);
    let format = format.map_or("a tensor without a pixel format", PixelFormat::name);
    Error::NoSuchPlane { format, planes, index }
}

/// The axis that counts rows: images with separate colour planes have them second.
fn row_axis(format: PixelFormat) -> usize {
    usize::from(format.kind() == FormatKind::Planar && format.channels() > 1)
}

fn check_pixel_group(format: PixelFormat, x: usize, y: usize) -> Result<()> {
    let (unit_width, unit_height) = format.pixel_group();
    if x.is_multiple_of(unit_width) && y.is_multiple_of(unit_height) {
        return Ok(());
    }
    Err(Error::UnalignedRoi { x, y, unit_width, unit_height, format: format.name() })
}

/// The layout of a whole image: its rows `stride` bytes apart, its planes one after another.
pub(crate) fn image_layout(
    format: PixelFormat,
    shape: &[usize],
    height: usize,
    stride: usize,
    offset: usize,
) -> Result<Layout> {
    let item = format.dtype().size();
    let overflow = || Error::SizeOverflow { shape: shape.into(), item_size: item };
    let signed = |bytes: usize| isize::try_from(bytes).map_err(|_| overflow());
    let (row, item) = (signed(stride)?, signed(item)?);
    let strides = match *shape {
        [_, _, _] if row_axis(format) == 1 => {
            [signed(stride.checked_mul(height).ok_or_else(overflow)?)?, row, item]
        }
        [_, _, channels] => [row, signed(channels)?.checked_mul(item).ok_or_else(overflow)?, item],
        _ => [row, item, 0],
    };
    Layout::strided(shape, &strides[..shape.len()], offset, format.dtype().size())
}

/// A layout in which a single row has a stride that fits. The stride of an axis of length 1 is never
/// used and may be anything, so it is no reason to refuse an image.
fn with_usable_row_stride(format: PixelFormat, layout: &Layout) -> Result<Layout> {
    let (width, height) = format.size_of(layout.shape())?;
    let rows = row_axis(format);
    let stride = usize::try_from(layout.strides()[rows]).unwrap_or(0);
    if layout.shape()[rows] > 1 || format.check_row_stride(width, stride).is_ok() {
        return Ok(layout.clone());
    }
    let stride = match usize::try_from(layout.strides()[0]) {
        // One row in each of several planes: as far apart as the planes are.
        Ok(planes) if rows == 1 => planes,
        _ => format.min_row_stride(width)?,
    };
    let usable = image_layout(format, layout.shape(), height, stride, layout.offset())?;
    Ok(if same_elements(&usable, layout) { usable } else { layout.clone() })
}

/// Checks planes that did not come out of one image together.
fn check_far_planes(format: PixelFormat, planes: &[Tensor]) -> Result<()> {
    let Some(&[height, width]) = planes.first().map(Tensor::shape) else {
        return Err(Error::FormatShape {
            format: format.name(),
            shape: planes.first().map_or(&[][..], Tensor::shape).into(),
            expected: "[height, width] for plane 0",
        });
    };
    let places = format.planes(width, height, format.min_row_stride(width)?)?;
    if places.len() != planes.len() {
        let (expected, given) = (places.len(), planes.len());
        return Err(Error::PlaneCount { format: format.name(), expected, given });
    }
    places.iter().zip(planes).try_for_each(|(place, plane)| check_far_plane(format, place, plane))
}

fn check_far_plane(format: PixelFormat, place: &Plane, plane: &Tensor) -> Result<()> {
    if plane.dtype != format.dtype() {
        return Err(Error::FormatDType {
            format: format.name(),
            expected: format.dtype().name(),
            found: plane.dtype.name(),
        });
    }
    let stride = plane.strides().first().and_then(|&stride| usize::try_from(stride).ok());
    let place = Plane { stride: stride.unwrap_or(0), ..*place };
    let regular = plane_layout(&Plane { offset: 0, ..place }, 0, format.dtype().size())?;
    if place.stride >= place.row_bytes
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

/// The layouts of the planes of an image, after checking that `layout` is one.
fn plane_layouts(format: PixelFormat, layout: &Layout) -> Result<Vec<Layout>> {
    let (width, height) = format.size_of(layout.shape())?;
    let stride = row_stride(format, layout)?;
    format.check_row_stride(width, stride)?;
    let regular = image_layout(format, layout.shape(), height, stride, layout.offset())?;
    if !same_elements(&regular, layout) {
        return Err(not_rows(format, layout));
    }
    let planes = format.planes(width, height, stride)?;
    planes.iter().map(|plane| plane_layout(plane, layout.offset(), layout.item_size())).collect()
}

/// Whether two layouts of one shape put every element in the same place.
fn same_elements(a: &Layout, b: &Layout) -> bool {
    let strides = a.strides().iter().zip(b.strides());
    a.shape().iter().zip(strides).all(|(&len, (a, b))| len == 1 || a == b)
}

/// The layout of the samples of one plane of an image that starts at `base`.
pub(crate) fn plane_layout(plane: &Plane, base: usize, item: usize) -> Result<Layout> {
    let shape = [plane.rows, plane.width, plane.channels];
    let overflow = || Error::SizeOverflow { shape: shape.into(), item_size: item };
    let signed = |bytes: Option<usize>| {
        bytes.and_then(|bytes| isize::try_from(bytes).ok()).ok_or_else(overflow)
    };
    let offset = base.checked_add(plane.offset).ok_or_else(overflow)?;
    let pixel = signed(plane.channels.checked_mul(item))?;
    let strides = [signed(Some(plane.stride))?, pixel, signed(Some(item))?];
    let ndim = if plane.channels == 1 { 2 } else { 3 };
    Layout::strided(&shape[..ndim], &strides[..ndim], offset, item)
}
