//! The rows of a mapped tensor: each is the bytes of a point.

use std::ops::Range;

use crate::error::{Error, Result};
#[cfg(feature = "ndarray")]
use crate::tensor::map::MapLayout;
use crate::tensor::map::{TensorMap, TensorMapMut};
#[cfg(feature = "ndarray")]
use crate::types::dtype::DType;
use crate::types::layout::Layout;

impl TensorMap<'_> {
    /// Returns the bytes of one row.
    pub(crate) fn row(&self, index: usize) -> Result<&[u8]> {
        Ok(self.at(row_range(self.layout, index)?))
    }
}

impl TensorMapMut<'_> {
    /// Returns the bytes of one row.
    pub(crate) fn row_mut(&mut self, index: usize) -> Result<&mut [u8]> {
        Ok(self.at_mut(row_range(&self.layout, index)?))
    }

    /// The same bytes as elements of another type. Fails if they do not lie in what is mapped.
    #[cfg(feature = "ndarray")]
    pub(crate) fn reinterpreted(self, layout: Layout, dtype: DType) -> Result<Self> {
        let range = layout.byte_range();
        if range.start < self.base {
            let (start, end) = (range.start as i128, range.end as i128);
            return Err(Error::OutOfBuffer { start, end, len: self.bytes.len() });
        }
        layout.fits(self.base + self.bytes.len())?;
        Ok(TensorMapMut { layout: MapLayout::Part(Box::new(layout)), dtype, format: None, ..self })
    }
}

/// The bytes of a row. Fails if there is none of this index, or it is not contiguous.
fn row_range(layout: &Layout, index: usize) -> Result<Range<usize>> {
    let shape = layout.shape();
    let missing = || Error::BadIndex { index: [index, 0].into(), shape: shape.into() };
    let start = layout.offset_of(&[index, 0]).ok_or_else(missing)?;
    let last = layout.offset_of(&[index, shape[1] - 1]).ok_or_else(missing)?;
    // A row that is backwards, or has gaps, is not contiguous.
    let end = last + layout.item_size();
    let len = shape[1] * layout.item_size();
    if start.checked_add(len) == Some(end) { Ok(start..end) } else { Err(layout.not_contiguous()) }
}
