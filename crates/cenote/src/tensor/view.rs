//! Views: other layouts over the same buffer. They cost no syscall and no copy.
//!
//! A view has no pixel format, for its axes need no longer be rows and columns; only
//! [`Tensor::roi`] keeps it.

use std::ops::Range;

use crate::error::Result;
use crate::tensor::Tensor;
use crate::types::dtype::DType;
use crate::types::layout::Layout;

impl Tensor {
    /// A view with a layout derived from this one's. It lies inside the buffer because every
    /// element of it is an element of `self`.
    pub(crate) fn with_layout(&self, layout: Layout) -> Tensor {
        debug_assert!(layout.fits(self.buffer.storage().len()).is_ok());
        Tensor {
            buffer: self.buffer.clone(),
            layout,
            dtype: self.dtype,
            device: self.device,
            format: None,
            far_planes: None,
        }
    }

    /// The same buffer, seen as elements of another type. An error if they do not lie in it.
    pub(crate) fn reinterpreted(&self, layout: Layout, dtype: DType) -> Result<Tensor> {
        Ok(Tensor::over(self.buffer.clone(), layout, dtype)?.with_device(self.device))
    }

    /// `len` elements of `axis`, from `start` on. The number of dimensions stays the same.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.narrow(axis, start, len)?))
    }

    /// Every `step`th element of `range` on `axis`.
    ///
    /// ```
    /// use cenote::Tensor;
    ///
    /// let tensor = Tensor::from_vec((0..10u8).collect(), &[10])?;
    /// assert_eq!(tensor.slice(0, 1..8, 3)?.to_vec::<u8>()?, [1, 4, 7]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn slice(&self, axis: usize, range: Range<usize>, step: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.slice(axis, range, step)?))
    }

    /// The elements at one index of `axis`, which is dropped.
    ///
    /// ```
    /// use cenote::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1u8, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(tensor.index(1, 0)?.to_vec::<u8>()?, [1, 4]); // the first column
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn index(&self, axis: usize, index: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.index(axis, index)?))
    }

    /// The same elements with the order of the axes reversed.
    pub fn transpose(&self) -> Tensor {
        self.with_layout(self.layout.transpose())
    }

    /// The same elements with the axes in the order given.
    ///
    /// ```
    /// use cenote::{DType, Tensor};
    ///
    /// let hwc = Tensor::new(&[480, 640, 3], DType::U8)?;
    /// assert_eq!(hwc.permute(&[2, 0, 1])?.shape(), [3, 480, 640]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.permute(axes)?))
    }

    /// The same elements in another shape. An error where that takes a copy:
    /// [`to_contiguous`](Tensor::to_contiguous) makes one.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.reshape(shape)?))
    }

    /// Drops an axis of length 1.
    pub fn squeeze(&self, axis: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.squeeze(axis)?))
    }

    /// Inserts an axis of length 1 before `axis`, or behind the last one if `axis` is `ndim`.
    pub fn unsqueeze(&self, axis: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.unsqueeze(axis)?))
    }

    /// The same elements with one axis backwards.
    pub fn flip(&self, axis: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.flip(axis)?))
    }
}
