//! The rows of a tensor of two axes, the second of which lies side by side: points of a cloud.

use std::ops::Range;

use crate::error::{Error, Result};
#[cfg(feature = "ndarray")]
use crate::tensor::map::Shown;
use crate::tensor::map::{TensorMap, TensorMapMut};
#[cfg(feature = "ndarray")]
use crate::types::dtype::DType;
use crate::types::layout::Layout;

impl TensorMap<'_> {
    /// The bytes of one row.
    pub(crate) fn row(&self, index: usize) -> Result<&[u8]> {
        Ok(self.at(place(self.layout, index)?))
    }
}

impl TensorMapMut<'_> {
    /// The bytes of one row.
    pub(crate) fn row_mut(&mut self, index: usize) -> Result<&mut [u8]> {
        Ok(self.at_mut(place(&self.layout, index)?))
    }

    /// The same buffer, seen as elements of another type. An error if they do not lie in it.
    #[cfg(feature = "ndarray")]
    pub(crate) fn reinterpreted(self, layout: Layout, dtype: DType) -> Result<Self> {
        let range = layout.byte_range();
        if range.start < self.base {
            let (start, end) = (range.start as i128, range.end as i128);
            return Err(Error::OutOfBuffer { start, end, len: self.bytes.len() });
        }
        layout.fits(self.base + self.bytes.len())?;
        Ok(TensorMapMut { layout: Shown::Part(Box::new(layout)), dtype, format: None, ..self })
    }
}

fn place(layout: &Layout, index: usize) -> Result<Range<usize>> {
    let shape = layout.shape();
    let missing = || Error::BadIndex { index: [index, 0].into(), shape: shape.into() };
    let start = layout.offset_of(&[index, 0]).ok_or_else(missing)?;
    let last = layout.offset_of(&[index, shape[1] - 1]).ok_or_else(missing)?;
    // Backwards or with gaps it would not be a row.
    let end = last + layout.item_size();
    let len = shape[1] * layout.item_size();
    if start.checked_add(len) == Some(end) { Ok(start..end) } else { Err(layout.not_contiguous()) }
}
