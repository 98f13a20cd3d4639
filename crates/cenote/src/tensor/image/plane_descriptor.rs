//! Importing an image from file descriptors of its planes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{Error, Result};
use crate::memory::choose::request::Import;
use crate::sys::memfd;
use crate::tensor::image::geometry::{image_layout, plane_layout};
use crate::tensor::tensor::Tensor;
use crate::types::pixel_format::PixelFormat;
use crate::types::pixel_format::geometry::Plane;

/// One plane of an image: a file descriptor, and optionally stride and offset.
///
/// It holds a duplicate of the caller's descriptor, so an invalid descriptor fails here.
///
/// ```
/// use cenote::{DType, PixelFormat, PlaneDescriptor, Tensor, TensorMemory};
///
/// // In place of a frame from a driver that pads its rows to 256 bytes.
/// let frame = Tensor::options().memory(TensorMemory::Shm).create(&[48 * 256], DType::U8)?;
///
/// let plane = PlaneDescriptor::new(frame.clone_fd()?)?.with_stride(256);
/// let image = Tensor::from_planes(64, 48, PixelFormat::Rgb8, [plane])?;
/// assert_eq!(image.shape(), [48, 64, 3]);
/// assert_eq!(image.row_stride(), Some(256));
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug)]
pub struct PlaneDescriptor {
    fd: OwnedFd,
    stride: Option<usize>,
    offset: Option<usize>,
}

impl PlaneDescriptor {
    /// A plane that starts at the first byte of `fd`, with the row stride of the format. Fails if `fd` cannot be
    /// duplicated.
    pub fn new(fd: impl AsFd) -> Result<Self> {
        let fd = fd.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|source| Error::os("duplicating a file descriptor", source))?;
        Ok(PlaneDescriptor { fd, stride: None, offset: None })
    }

    /// Sets the bytes from one row of the plane to the next.
    #[must_use]
    pub fn with_stride(mut self, stride: usize) -> Self {
        self.stride = Some(stride);
        self
    }

    /// Sets the offset of the plane in the file, in bytes.
    #[must_use]
    pub fn with_offset(mut self, offset: usize) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The file descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The bytes from one row to the next, if set.
    pub fn stride(&self) -> Option<usize> {
        self.stride
    }

    /// The offset of the plane in the file, if set.
    pub fn offset(&self) -> Option<usize> {
        self.offset
    }
}

impl Tensor {
    /// Makes a read-only image over foreign memory, given as one descriptor for all planes or as one for each.
    ///
    /// Planes that follow each other in one file make an ordinary tensor. Otherwise the tensor shows plane 0, and
    /// [`plane`](Tensor::plane) returns each plane. The default stride is the smallest that fits, or follows from
    /// that of plane 0. The default offset is 0 for the first plane in a file, and that of the format for the
    /// others.
    ///
    /// Fails for files that [`from_fd`](Tensor::from_fd) refuses, and if the planes do not match the format.
    ///
    /// ```
    /// use cenote::{DType, PixelFormat, PlaneDescriptor, Tensor, TensorMemory};
    ///
    /// let options = Tensor::options().memory(TensorMemory::Shm);
    /// let luma = options.create(&[480, 640], DType::U8)?;
    /// let chroma = options.create(&[240, 640], DType::U8)?;
    ///
    /// let planes = [
    ///     PlaneDescriptor::new(luma.clone_fd()?)?,
    ///     PlaneDescriptor::new(chroma.clone_fd()?)?,
    /// ];
    /// let frame = Tensor::from_planes(640, 480, PixelFormat::Nv12, planes)?;
    /// assert_eq!(frame.image_size(), Some((640, 480)));
    /// assert_eq!(frame.plane(1)?.shape(), [240, 320, 2]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn from_planes(
        width: usize,
        height: usize,
        format: PixelFormat,
        planes: impl IntoIterator<Item = PlaneDescriptor>,
    ) -> Result<Tensor> {
        let planes: Vec<PlaneDescriptor> = planes.into_iter().collect();
        let expected = format.plane_count();
        if planes.len() != 1 && planes.len() != expected {
            let given = planes.len();
            return Err(Error::PlaneCount { format: format.name(), expected, given });
        }
        let given = match planes[0].stride {
            Some(stride) => stride,
            None => format.min_row_stride(width)?,
        };
        // The stride of plane 0 need not suit the other planes if those have their own strides.
        let others = &planes[1..];
        let independent = !others.is_empty() && others.iter().all(|plane| plane.stride.is_some());
        let stride = match format.check_row_stride(width, given) {
            Err(_) if independent => format.min_row_stride(width)?,
            checked => checked.map(|()| given)?,
        };
        let regular = format.planes(width, height, stride)?;
        if planes.len() == 1 || lie_regularly(&planes, &regular)? {
            return import_whole(width, height, format, stride, planes);
        }
        import_each(width, format, &regular, planes)
    }
}

/// Returns whether the planes lie in one file, at the offsets and strides of the format.
fn lie_regularly(planes: &[PlaneDescriptor], regular: &[Plane]) -> Result<bool> {
    let base = planes[0].offset.unwrap_or(0);
    let first_file = file_of(&planes[0])?;
    for (plane, expected) in planes.iter().zip(regular) {
        let start = base.checked_add(expected.offset);
        let regular = plane.offset.is_none_or(|offset| Some(offset) == start)
            && plane.stride.is_none_or(|stride| stride == expected.stride);
        if !regular || file_of(plane)? != first_file {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The device and inode of a plane's file.
fn file_of(plane: &PlaneDescriptor) -> Result<(u64, u64)> {
    let facts = memfd::examine(&plane.fd).map_err(|source| Error::os("fstat", source))?;
    Ok(facts.file)
}

/// Imports the file of the first plane, which holds all planes one after another.
fn import_whole(
    width: usize,
    height: usize,
    format: PixelFormat,
    stride: usize,
    mut planes: Vec<PlaneDescriptor>,
) -> Result<Tensor> {
    let first = planes.swap_remove(0);
    let shape = format.shape(width, height)?;
    let layout = image_layout(format, &shape, height, stride, first.offset.unwrap_or(0))?;
    Tensor::import(first.fd, layout, format.dtype(), Import::ReadOnly)?.with_format(format)
}

/// Imports each plane separately. A file that holds several is mapped once.
fn import_each(
    width: usize,
    format: PixelFormat,
    regular: &[Plane],
    planes: Vec<PlaneDescriptor>,
) -> Result<Tensor> {
    // For each plane so far: its file, its regular position, its offset in the file, and its tensor.
    let mut imported: Vec<((u64, u64), Plane, usize, Tensor)> = Vec::with_capacity(planes.len());
    for (plane, expected) in planes.into_iter().zip(regular) {
        let file = file_of(&plane)?;
        let earlier = imported.iter().find(|(other, ..)| *other == file);
        // Planes come in the order of their regular offsets, so the difference is not negative.
        let default = earlier.map_or(Some(0), |(_, first, offset, _)| {
            offset.checked_add(expected.offset - first.offset)
        });
        let offset = plane.offset.or(default).unwrap_or(usize::MAX);
        let stride = plane_stride(&plane, expected, width, format)?;
        let found = Plane { offset, stride, ..*expected };
        let layout = plane_layout(&found, 0, format.dtype().size())?;
        let tensor = match earlier {
            Some((.., earlier)) => Tensor::over(earlier.buffer.clone(), layout, format.dtype())?,
            None => Tensor::import(plane.fd, layout, format.dtype(), Import::ReadOnly)?,
        };
        imported.push((file, *expected, offset, tensor));
    }
    let planes = imported.into_iter().map(|(.., tensor)| tensor).collect();
    Tensor::from_far_planes(format, planes)
}

/// Returns the stride of a plane. Fails if it is shorter than a row.
fn plane_stride(
    plane: &PlaneDescriptor,
    expected: &Plane,
    width: usize,
    format: PixelFormat,
) -> Result<usize> {
    match plane.stride {
        Some(given) if given < expected.row_bytes => Err(Error::BadRowStride {
            given,
            min: expected.row_bytes,
            multiple: 1,
            width,
            format: format.name(),
        }),
        given => Ok(given.unwrap_or(expected.stride)),
    }
}
