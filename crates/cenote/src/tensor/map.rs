//! CPU access to a tensor's elements: guards that return slices.
//!
//! Memory that devices use needs its caches synchronised around each access, so every access goes through a
//! guard, whatever the memory. For heap and shared memory the guard costs nothing.

use std::fmt;
use std::ops::{Deref, Range};

use bytemuck::checked;

use crate::error::{Error, Result};
use crate::memory::cpu_access::CpuAccess;
use crate::tensor::image::geometry::{no_such_plane, plane_at};
use crate::types::dtype::{DType, Element};
use crate::types::layout::Layout;
use crate::types::pixel_format::PixelFormat;

/// Read access to the elements of a tensor, until dropped.
///
/// ```
/// use cenote::Tensor;
///
/// let tensor = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// let map = tensor.map()?;
/// assert_eq!(map.as_slice::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), cenote::Error>(())
/// ```
pub struct TensorMap<'a> {
    pub(crate) bytes: &'a [u8],
    /// The offset of `bytes` in the buffer.
    pub(crate) base: usize,
    pub(crate) layout: &'a Layout,
    pub(crate) dtype: DType,
    /// The bytes cannot change while they are mapped.
    pub(crate) stable: bool,
    /// Ends the access when dropped. The bytes may be unmapped then, so they are only borrowed from this
    /// struct.
    pub(crate) _access: CpuAccess<'a>,
}

/// Write access to the elements of a tensor, until dropped.
///
/// ```
/// use cenote::{DType, Tensor};
///
/// let mut tensor = Tensor::new(&[2, 3], DType::U16)?;
/// tensor.map_mut()?.as_mut_slice::<u16>()?.fill(7);
/// assert_eq!(tensor.to_vec::<u16>()?, [7; 6]);
/// # Ok::<(), cenote::Error>(())
/// ```
pub struct TensorMapMut<'a> {
    pub(crate) bytes: &'a mut [u8],
    /// The offset of `bytes` in the buffer.
    pub(crate) base: usize,
    pub(crate) layout: MapLayout<'a>,
    pub(crate) dtype: DType,
    pub(crate) format: Option<PixelFormat>,
    /// As in [`TensorMap`].
    pub(crate) _access: CpuAccess<'a>,
}

/// The layout of what is mapped: that of the tensor, or one of a part of it. The part is in a box, so that the
/// guard stays small.
#[derive(Debug)]
pub(crate) enum MapLayout<'a> {
    Whole(&'a Layout),
    Part(Box<Layout>),
}

impl Deref for MapLayout<'_> {
    type Target = Layout;

    #[inline]
    fn deref(&self) -> &Layout {
        match self {
            MapLayout::Whole(layout) => layout,
            MapLayout::Part(layout) => layout,
        }
    }
}

impl TensorMap<'_> {
    /// Returns bytes by their range in the buffer.
    #[inline]
    pub(crate) fn at(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range.start - self.base..range.end - self.base]
    }

    /// Returns the elements as bytes. Fails if they are not contiguous.
    #[inline]
    pub fn as_bytes(&self) -> Result<&[u8]> {
        Ok(self.at(contiguous(self.layout)?))
    }

    /// Returns the elements in row-major order. Fails if they are not contiguous, or not of type `T`.
    ///
    /// Every call checks each byte of `bool` elements, and refuses them in memory that another process can still
    /// write: a byte that is neither 0 nor 1 must never become a `bool`.
    #[inline]
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        check_dtype::<T>(self.dtype)?;
        check_stable::<T>(self.stable)?;
        cast(self.as_bytes()?)
    }

    /// Iterates over the contiguous runs of bytes, in row-major order: one run if the tensor is contiguous, one
    /// for each row of a padded image.
    ///
    /// ```
    /// use cenote::Tensor;
    ///
    /// let tensor = Tensor::from_vec((0..12u8).collect(), &[3, 4])?;
    /// let middle = tensor.roi(1, 0, 2, 3)?;
    /// let map = middle.map()?;
    /// let rows: Vec<&[u8]> = map.runs().collect();
    /// assert_eq!(rows, [[1, 2], [5, 6], [9, 10]]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn runs(&self) -> impl Iterator<Item = &[u8]> {
        self.layout.runs().map(|run| self.at(run))
    }

    /// Returns one element. For many elements a slice or an array is faster. Fails if there is none of this
    /// index, or it is not of type `T`.
    pub fn get<T: Element>(&self, index: &[usize]) -> Result<T> {
        check_dtype::<T>(self.dtype)?;
        let start = locate(self.layout, index)?;
        checked::try_pod_read_unaligned(self.at(start..start + size_of::<T>()))
            .map_err(|_| Error::InvalidValue { dtype: T::DTYPE.name() })
    }
}

impl TensorMapMut<'_> {
    /// Returns bytes by their range in the buffer.
    #[inline]
    pub(crate) fn at_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.bytes[range.start - self.base..range.end - self.base]
    }

    /// Returns all bytes that are mapped: those of the whole buffer if it is an image.
    pub(crate) fn all_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Returns read access to the same elements.
    pub fn as_map(&self) -> TensorMap<'_> {
        let stable = true; // this guard has exclusive write access
        let _access = CpuAccess::default(); // covered by that of `self`
        let (base, layout, dtype) = (self.base, &self.layout, self.dtype);
        TensorMap { bytes: self.bytes, base, layout, dtype, stable, _access }
    }

    /// Returns the elements as bytes. Fails if they are not contiguous.
    #[inline]
    pub fn as_mut_bytes(&mut self) -> Result<&mut [u8]> {
        let range = contiguous(&self.layout)?;
        Ok(self.at_mut(range))
    }

    /// Returns the elements in row-major order. Fails if they are not contiguous, or not of type `T`.
    #[inline]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        check_dtype::<T>(self.dtype)?;
        cast_mut(self.as_mut_bytes()?)
    }

    /// Calls `f` with each contiguous run of bytes, in row-major order, as [`TensorMap::runs`] returns them for
    /// reading.
    pub fn for_each_run(&mut self, mut f: impl FnMut(&mut [u8])) {
        let base = self.base;
        for run in self.layout.runs() {
            f(&mut self.bytes[run.start - base..run.end - base]);
        }
    }

    /// Returns write access to one plane of an image, as rows of samples. Fails if there is no such plane.
    ///
    /// The chroma of a padded or odd-sized image is not at the rows of the whole image, so it can only be
    /// written by this.
    ///
    /// ```
    /// use cenote::{PixelFormat, TensorOptions};
    ///
    /// let mut frame = TensorOptions::new().row_alignment(64).image(100, 50, PixelFormat::I420)?;
    /// let mut map = frame.map_mut()?;
    /// map.plane_mut(1)?.for_each_run(|row| row.fill(128));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn plane_mut(&mut self, index: usize) -> Result<TensorMapMut<'_>> {
        let layout = match self.format {
            Some(format) => MapLayout::Part(Box::new(plane_at(format, &self.layout, index)?)),
            None if index == 0 => MapLayout::Whole(&self.layout),
            None => return Err(no_such_plane(None, index)),
        };
        let (base, dtype) = (self.base, self.dtype);
        let _access = CpuAccess::default(); // covered by that of `self`
        Ok(TensorMapMut { bytes: self.bytes, base, layout, dtype, format: None, _access })
    }

    /// Sets one element. Fails if there is none of this index, or it is not of type `T`.
    pub fn set<T: Element>(&mut self, index: &[usize], value: T) -> Result<()> {
        check_dtype::<T>(self.dtype)?;
        let start = locate(&self.layout, index)?;
        self.at_mut(start..start + size_of::<T>()).copy_from_slice(bytemuck::bytes_of(&value));
        Ok(())
    }
}

/// Omits the bytes: there may be millions.
impl fmt::Debug for TensorMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TensorMap");
        debug.field("dtype", &self.dtype).field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl fmt::Debug for TensorMapMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TensorMapMut");
        debug.field("dtype", &self.dtype).field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// Fails unless `T` is the type of the elements.
#[inline]
pub(crate) fn check_dtype<T: Element>(found: DType) -> Result<()> {
    if T::DTYPE == found {
        return Ok(());
    }
    Err(Error::WrongDType { asked: T::DTYPE.name(), found: found.name() })
}

/// Fails for elements of which not every bit pattern is valid, in memory that can change.
#[inline]
pub(crate) fn check_stable<T: Element>(stable: bool) -> Result<()> {
    if stable || T::DTYPE != DType::Bool {
        return Ok(());
    }
    Err(Error::Changeable { dtype: T::DTYPE.name() })
}

/// Returns the bytes of a layout. Fails unless its elements are contiguous.
#[inline]
fn contiguous(layout: &Layout) -> Result<Range<usize>> {
    match layout.packed_end() {
        Some(end) => Ok(layout.offset()..end),
        None => Err(layout.not_contiguous()),
    }
}

/// Returns the offset of an element. Fails if there is none of this index.
fn locate(layout: &Layout, index: &[usize]) -> Result<usize> {
    layout
        .offset_of(index)
        .ok_or_else(|| Error::BadIndex { index: index.into(), shape: layout.shape().into() })
}

/// Casts bytes to elements. The caller has checked the dtype. Fails for misaligned bytes and invalid values.
#[inline]
pub(crate) fn cast<T: Element>(bytes: &[u8]) -> Result<&[T]> {
    T::cast(bytes).map_err(cast_error::<T>)
}

#[inline]
pub(crate) fn cast_mut<T: Element>(bytes: &mut [u8]) -> Result<&mut [T]> {
    T::cast_mut(bytes).map_err(cast_error::<T>)
}

fn cast_error<T: Element>(error: checked::CheckedCastError) -> Error {
    let dtype = T::DTYPE.name();
    match error {
        checked::CheckedCastError::InvalidBitPattern => Error::InvalidValue { dtype },
        // The length is a multiple of the element's size, so only alignment is left.
        checked::CheckedCastError::PodCastError(_) => {
            Error::Misaligned { dtype, align: align_of::<T>() }
        }
    }
}
