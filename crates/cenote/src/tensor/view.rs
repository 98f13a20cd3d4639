//! Views: other layouts over the same buffer, without a system call and without a copy.
//!
//! A view has no pixel format, because its axes need not be rows and columns. Only [`Tensor::roi`] keeps the
//! format.

use std::ops::Range;

use crate::error::Result;
use crate::tensor::tensor::Tensor;
use crate::types::dtype::DType;
use crate::types::layout::Layout;

impl Tensor {
    /// Returns a view with a layout that was derived from this one. It lies inside the buffer, because every
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

    /// Returns the same buffer as elements of another type. Fails if they do not lie in it.
    pub(crate) fn reinterpreted(&self, layout: Layout, dtype: DType) -> Result<Tensor> {
        Ok(Tensor::over(self.buffer.clone(), layout, dtype)?.with_device(self.device))
    }

    /// Returns `len` elements of `axis`, from `start` on. The number of dimensions stays the same.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.narrow(axis, start, len)?))
    }

    /// Returns every `step`th element of `range` on `axis`.
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

    /// Returns the elements at one index of `axis`, without that axis.
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

    /// Returns the same elements with the order of the axes reversed.
    pub fn transpose(&self) -> Tensor {
        self.with_layout(self.layout.transpose())
    }

    /// Returns the same elements with the axes in this order.
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

    /// Returns the same elements in another shape. Fails if that needs a copy, which
    /// [`to_contiguous`](Tensor::to_contiguous) makes.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.reshape(shape)?))
    }

    /// Removes an axis of length 1.
    pub fn squeeze(&self, axis: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.squeeze(axis)?))
    }

    /// Inserts an axis of length 1 before `axis`, or after the last one if `axis` is `ndim`.
    pub fn unsqueeze(&self, axis: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.unsqueeze(axis)?))
    }

    /// Returns the same elements with one axis reversed.
    pub fn flip(&self, axis: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.flip(axis)?))
    }
}
