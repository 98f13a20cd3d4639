//! Where the rows and planes of an image lie: layouts of pixel formats, and checks of layouts.

use crate::error::{Error, Result};
use crate::types::layout::Layout;
use crate::types::pixel_format::geometry::Plane;
use crate::types::pixel_format::{FormatKind, PixelFormat};

/// Returns the layout of one plane of an image. `layout` was checked to be an image of this format.
pub(crate) fn plane_at(format: PixelFormat, layout: &Layout, index: usize) -> Result<Layout> {
    let (width, height) = format.size_of(layout.shape())?;
    let stride = row_stride(format, layout)?;
    let planes = format.planes(width, height, stride)?;
    let plane = planes.get(index).ok_or_else(|| no_such_plane(Some(format), index))?;
    plane_layout(plane, layout.offset(), layout.item_size())
}

/// Fails unless `layout` is rows of contiguous pixels.
pub(crate) fn check_packed(format: PixelFormat, layout: &Layout) -> Result<()> {
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

/// Returns the bytes from one row to the next. Fails if they run backwards.
pub(crate) fn row_stride(format: PixelFormat, layout: &Layout) -> Result<usize> {
    let stride = layout.strides()[row_axis(format)];
    usize::try_from(stride).map_err(|_| not_rows(format, layout))
}

pub(crate) fn not_rows(format: PixelFormat, layout: &Layout) -> Error {
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

/// The axis that counts rows: the second for images with separate colour planes, else the first.
pub(crate) fn row_axis(format: PixelFormat) -> usize {
    usize::from(format.kind() == FormatKind::Planar && format.channels() > 1)
}

/// Fails if a rectangle that starts at this pixel would split a group of pixels that share samples.
pub(crate) fn check_pixel_group(format: PixelFormat, x: usize, y: usize) -> Result<()> {
    let (unit_width, unit_height) = format.pixel_group();
    if x.is_multiple_of(unit_width) && y.is_multiple_of(unit_height) {
        return Ok(());
    }
    Err(Error::UnalignedRoi { x, y, unit_width, unit_height, format: format.name() })
}

/// Returns the layout of a whole image, with rows `stride` bytes apart and planes one after another. Fails if
/// it overflows.
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

/// Returns the layout with a row stride that the format allows, if the image has a single row. The stride of an
/// axis of length 1 is never used and may have any value, so an image is not refused for it.
pub(crate) fn with_usable_row_stride(format: PixelFormat, layout: &Layout) -> Result<Layout> {
    let (width, height) = format.size_of(layout.shape())?;
    let rows = row_axis(format);
    let stride = usize::try_from(layout.strides()[rows]).unwrap_or(0);
    if layout.shape()[rows] > 1 || format.check_row_stride(width, stride).is_ok() {
        return Ok(layout.clone());
    }
    let stride = match usize::try_from(layout.strides()[0]) {
        // Several planes of one row each: the row stride is the distance of the planes.
        Ok(planes) if rows == 1 => planes,
        _ => format.min_row_stride(width)?,
    };
    let usable = image_layout(format, layout.shape(), height, stride, layout.offset())?;
    Ok(if same_elements(&usable, layout) { usable } else { layout.clone() })
}

/// Returns the layouts of the planes of an image. Fails unless `layout` is an image of this format.
pub(crate) fn plane_layouts(format: PixelFormat, layout: &Layout) -> Result<Vec<Layout>> {
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

/// Returns whether two layouts of the same shape and offset put every element at the same offset.
pub(crate) fn same_elements(a: &Layout, b: &Layout) -> bool {
    let strides = a.strides().iter().zip(b.strides());
    a.shape().iter().zip(strides).all(|(&len, (a, b))| len == 1 || a == b)
}

/// Returns the layout of the samples of one plane, in an image that starts at `base`.
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
