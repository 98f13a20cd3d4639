//! CPU access to a tensor's elements: guards that give out slices.
//!
//! Mapping is where a memory that devices use gets its caches in order, so every access goes
//! through a guard, whatever the memory. For heap and shared memory the guard costs nothing.

use bytemuck::checked;

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::layout::Layout;

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
#[derive(Debug)]
pub struct TensorMap<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) layout: &'a Layout,
    pub(super) dtype: DType,
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
#[derive(Debug)]
pub struct TensorMapMut<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) layout: &'a Layout,
    pub(super) dtype: DType,
}

impl TensorMap<'_> {
    /// The elements as bytes. An error if they are not contiguous.
    pub fn as_bytes(&self) -> Result<&[u8]> {
        check_contiguous(self.layout)?;
        Ok(&self.bytes[self.layout.byte_range()])
    }

    /// The elements in row-major order. An error if they are not contiguous, or not of type `T`.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        check_dtype::<T>(self.dtype)?;
        cast(self.as_bytes()?)
    }

    /// The runs of bytes that lie side by side, in row-major order: one run if the tensor is
    /// contiguous, one for each row of a padded image.
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
        self.layout.runs().map(|run| &self.bytes[run])
    }

    /// One element, contiguous or not. For many of them a slice or an array is faster.
    pub fn get<T: Element>(&self, index: &[usize]) -> Result<T> {
        check_dtype::<T>(self.dtype)?;
        let at = locate(self.layout, index)?;
        checked::try_pod_read_unaligned(&self.bytes[at..at + size_of::<T>()])
            .map_err(|_| Error::InvalidValue { dtype: T::DTYPE.name() })
    }
}

impl TensorMapMut<'_> {
    /// Read access to the same elements.
    pub fn as_map(&self) -> TensorMap<'_> {
        TensorMap { bytes: self.bytes, layout: self.layout, dtype: self.dtype }
    }

    /// The elements as bytes. An error if they are not contiguous.
    pub fn as_mut_bytes(&mut self) -> Result<&mut [u8]> {
        check_contiguous(self.layout)?;
        Ok(&mut self.bytes[self.layout.byte_range()])
    }

    /// The elements in row-major order. An error if they are not contiguous, or not of type `T`.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        check_dtype::<T>(self.dtype)?;
        cast_mut(self.as_mut_bytes()?)
    }

    /// Calls `f` with each run of bytes that lie side by side, in row-major order: what
    /// [`TensorMap::runs`] is for reading.
    pub fn for_each_run(&mut self, mut f: impl FnMut(&mut [u8])) {
        for run in self.layout.runs() {
            f(&mut self.bytes[run]);
        }
    }

    /// Sets one element.
    pub fn set<T: Element>(&mut self, index: &[usize], value: T) -> Result<()> {
        check_dtype::<T>(self.dtype)?;
        let at = locate(self.layout, index)?;
        self.bytes[at..at + size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        Ok(())
    }
}

pub(crate) fn check_dtype<T: Element>(found: DType) -> Result<()> {
    if T::DTYPE == found {
        return Ok(());
    }
    Err(Error::WrongDType { asked: T::DTYPE.name(), found: found.name() })
}

fn check_contiguous(layout: &Layout) -> Result<()> {
    if layout.is_contiguous() {
        return Ok(());
    }
    Err(Error::NotContiguous { shape: layout.shape().into(), strides: layout.strides().into() })
}

fn locate(layout: &Layout, index: &[usize]) -> Result<usize> {
    layout
        .offset_of(index)
        .ok_or_else(|| Error::BadIndex { index: index.into(), shape: layout.shape().into() })
}

/// Looks at bytes as elements. The dtype has been checked; alignment and values have not.
pub(crate) fn cast<T: Element>(bytes: &[u8]) -> Result<&[T]> {
    checked::try_cast_slice(bytes).map_err(cast_error::<T>)
}

pub(crate) fn cast_mut<T: Element>(bytes: &mut [u8]) -> Result<&mut [T]> {
    checked::try_cast_slice_mut(bytes).map_err(cast_error::<T>)
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
