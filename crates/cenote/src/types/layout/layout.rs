//! Where the elements of a tensor lie: shape, byte strides, offset, and the arithmetic over them.
//!
//! A [`Layout`] has the size of an element but not its type, and owns no memory. Its constructors check this: no axis is
//! empty, `nbytes` is at most `isize::MAX`, and every byte covered lies in `0..=isize::MAX`. Each sum of
//! `index * stride` over some of the axes is the offset of an element, so nothing computed from a layout later can
//! overflow. A view covers only bytes of its parent, so views (`view.rs`) need no check.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::zip;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::types::layout::axes::{Axes, MAX_DIMS};

/// Shape, byte strides and offset of a tensor inside its buffer.
///
/// ```
/// use cenote::Layout;
///
/// let frame = Layout::contiguous(&[1080, 1920, 3], 1)?;
/// assert_eq!(frame.strides(), [5760, 3, 1]);
/// assert_eq!(frame.nbytes(), 6_220_800);
///
/// let face = frame.roi(600, 200, 64, 64)?;
/// assert_eq!(face.shape(), [64, 64, 3]);
/// assert_eq!(face.offset(), 200 * 5760 + 600 * 3);
/// assert!(!face.is_contiguous());
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Clone)]
pub struct Layout {
    /// Lengths of at least 1, and strides in bytes. The stride of an axis of length 1 is never used and is undefined.
    pub(crate) axes: Axes,
    /// Byte offset of the first element.
    pub(crate) offset: usize,
    /// At least 1.
    pub(crate) item_size: usize,
}

impl Layout {
    /// A packed layout in row-major order, at offset 0. An empty shape is a scalar: one element.
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// assert_eq!(Layout::contiguous(&[2, 3], 4)?.strides(), [12, 4]);
    /// assert_eq!(Layout::contiguous(&[], 4)?.len(), 1);
    /// assert!(Layout::contiguous(&[2, 0], 4).is_err());
    /// assert!(Layout::contiguous(&[usize::MAX, 3], 4).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    #[inline]
    pub fn contiguous(shape: &[usize], item_size: usize) -> Result<Layout> {
        let len_of = |axis: usize| shape[axis];
        match Self::packed_len(shape.len(), len_of, item_size) {
            Some(_) => Ok(Self::packed(shape.len(), len_of, 0, item_size)),
            None => Err(Self::why_not(shape, item_size)),
        }
    }

    /// The bytes of a packed layout of `ndim` axes; `None` if there is no such layout.
    #[inline(always)]
    pub(crate) fn packed_len(
        ndim: usize,
        len_of: impl Fn(usize) -> usize,
        item_size: usize,
    ) -> Option<usize> {
        if ndim > MAX_DIMS {
            return None;
        }
        // Zero stays zero. The check below refuses zero, and sizes that are too large.
        let bytes = (0..ndim).fold(item_size, |bytes, axis| bytes.saturating_mul(len_of(axis)));
        matches!(isize::try_from(bytes), Ok(1..)).then_some(bytes)
    }

    /// The packed layout whose size [`packed_len`](Layout::packed_len) returned. It is on the path of every message and
    /// every pool tensor, so it checks nothing again.
    #[inline(always)]
    pub(crate) fn packed(
        ndim: usize,
        len_of: impl Fn(usize) -> usize,
        offset: usize,
        item_size: usize,
    ) -> Layout {
        Layout { axes: Axes::packed(ndim, len_of, item_size), offset, item_size }
    }

    /// The error for a shape that has no packed layout.
    #[cold]
    pub(crate) fn why_not(shape: &[usize], item_size: usize) -> Error {
        let overflow = || Error::SizeOverflow { shape: shape.into(), item_size };
        check_shape(shape, item_size).err().unwrap_or_else(overflow)
    }

    /// A layout with the given byte strides, which may be zero or negative. `offset` is where the first element starts.
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// // Rows of 3 bytes, padded to 8.
    /// let padded = Layout::strided(&[2, 3], &[8, 1], 0, 1)?;
    /// assert_eq!(padded.byte_range(), 0..11);
    ///
    /// // Back to front: the first element lies last.
    /// let reversed = Layout::strided(&[4], &[-2], 6, 2)?;
    /// assert_eq!(reversed.byte_range(), 0..8);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn strided(
        shape: &[usize],
        strides: &[isize],
        offset: usize,
        item_size: usize,
    ) -> Result<Layout> {
        check_shape(shape, item_size)?;
        if shape.len() != strides.len() {
            return Err(Error::StrideCount { dims: shape.len(), strides: strides.len() });
        }
        let mut layout = Layout::scalar(0, item_size);
        for (&len, &stride) in zip(shape, strides) {
            layout.axes.insert(layout.ndim(), len, stride);
        }
        let mut layout = layout.with_offset(offset)?;
        if let Some(end) = layout.find_packed_end() {
            layout.axes.set_packed(end - offset);
        }
        Ok(layout)
    }

    /// A layout from words of 64 bits, as processes exchange them. Every word is checked.
    #[cfg(target_os = "linux")]
    pub(crate) fn from_words(
        shape: &[u64],
        strides: &[i64],
        offset: u64,
        item_size: usize,
    ) -> Result<Layout> {
        let bad = |what| Error::BadMessage { what };
        let (mut lens, mut steps) = ([0; MAX_DIMS], [0; MAX_DIMS]);
        let ndim = shape.len();
        if ndim > MAX_DIMS {
            return Err(Error::TooManyDims { found: ndim, max: MAX_DIMS });
        }
        for (to, &from) in zip(&mut lens, shape) {
            *to = usize::try_from(from).map_err(|_| bad("the shape is too large"))?;
        }
        for (to, &from) in zip(&mut steps, strides) {
            *to = isize::try_from(from).map_err(|_| bad("a stride is too large"))?;
        }
        let offset = usize::try_from(offset).map_err(|_| bad("the offset is too large"))?;
        Layout::strided(&lens[..ndim], &steps[..strides.len().min(MAX_DIMS)], offset, item_size)
    }

    /// The same layout with its first element at another byte offset.
    pub fn with_offset(self, offset: usize) -> Result<Layout> {
        let (below, above) = self.reach();
        let start = offset as i128 + below;
        let end = offset as i128 + above + self.item_size as i128;
        if end > isize::MAX as i128 {
            return Err(self.overflow());
        }
        if start < 0 {
            return Err(Error::OutOfBuffer { start, end, len: 0 });
        }
        Ok(Layout { offset, ..self })
    }

    /// Lengths of the axes, outermost first.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.axes.shape()
    }

    /// Bytes from one element to the next along each axis.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        self.axes.strides()
    }

    /// Number of axes.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.axes.count()
    }

    /// Bytes of one element.
    #[inline]
    pub fn item_size(&self) -> usize {
        self.item_size
    }

    /// Byte offset of the first element: the one whose indices are all 0.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Always false: a layout has at least one element.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Bytes of all elements together: what a packed copy needs.
    #[inline]
    pub fn nbytes(&self) -> usize {
        self.axes.packed_len().unwrap_or_else(|| self.len() * self.item_size)
    }

    /// The bytes covered, from the lowest to one past the highest, gaps included.
    #[inline]
    pub fn byte_range(&self) -> Range<usize> {
        let (mut start, mut end) = (self.offset, self.offset + self.item_size);
        for (len, stride) in self.axes() {
            let reach = stride.unsigned_abs() * (len - 1);
            if stride < 0 {
                start -= reach;
            } else {
                end += reach;
            }
        }
        start..end
    }

    /// Whether every byte covered lies inside a buffer of this many bytes.
    #[inline]
    pub fn fits(&self, buffer_len: usize) -> Result<()> {
        let Range { start, end } = self.byte_range();
        if end > buffer_len {
            return Err(Error::OutOfBuffer {
                start: start as i128,
                end: end as i128,
                len: buffer_len,
            });
        }
        Ok(())
    }

    /// Whether the elements are contiguous in row-major order.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.packed_end().is_some()
    }

    /// The end of the layout, if the elements are contiguous in row-major order.
    #[inline]
    pub(crate) fn packed_end(&self) -> Option<usize> {
        match self.axes.packed_len() {
            Some(len) => Some(self.offset + len),
            None => self.find_packed_end(),
        }
    }

    fn find_packed_end(&self) -> Option<usize> {
        let mut packed = self.item_size;
        for (len, stride) in self.axes().rev() {
            if len != 1 && stride != signed(packed) {
                return None;
            }
            packed *= len;
        }
        Some(self.offset + packed)
    }

    /// Whether elements may share bytes, so that writing one could change another.
    ///
    /// `false` is proven; `true` may be wrong for unusual strides. Views of a contiguous layout never overlap themselves.
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// assert!(!Layout::contiguous(&[4, 4], 2)?.transpose().overlaps_itself());
    /// assert!(Layout::strided(&[4, 4], &[0, 2], 0, 2)?.overlaps_itself());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn overlaps_itself(&self) -> bool {
        let mut steps = [(0, 0); MAX_DIMS];
        for (step, (len, stride)) in zip(&mut steps, self.axes()) {
            *step = (stride.unsigned_abs(), len - 1);
        }
        steps.sort_unstable();
        // From the smallest stride up: each step must clear all that the smaller ones cover.
        let mut covered = self.item_size;
        for (stride, count) in steps.into_iter().filter(|step| step.1 > 0) {
            if stride < covered {
                return true;
            }
            covered += stride * count;
        }
        false
    }

    /// Byte offset of the element at these indices, if there is one.
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// let layout = Layout::contiguous(&[2, 3], 4)?;
    /// assert_eq!(layout.offset_of(&[1, 2]), Some(20));
    /// assert_eq!(layout.offset_of(&[2, 0]), None);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn offset_of(&self, index: &[usize]) -> Option<usize> {
        if index.len() != self.ndim() {
            return None;
        }
        zip(index, self.axes()).try_fold(self.offset, |offset, (&i, (len, stride))| {
            (i < len).then(|| moved(offset, i, stride))
        })
    }

    #[inline]
    pub(crate) fn scalar(offset: usize, item_size: usize) -> Layout {
        Layout { axes: Axes::none(), offset, item_size }
    }

    /// Length and stride of each axis.
    #[inline]
    pub(crate) fn axes(
        &self,
    ) -> impl DoubleEndedIterator<Item = (usize, isize)> + ExactSizeIterator {
        zip(self.shape(), self.strides()).map(|(&len, &stride)| (len, stride))
    }

    /// How far the elements reach below and above the first one, not counting its own bytes.
    ///
    /// For layouts that are not checked yet, except for their length. That suffices for `i128`:
    /// the sum of all `len - 1` is less than the product of all `len`, so the sums stay below 2^126.
    fn reach(&self) -> (i128, i128) {
        self.axes().fold((0, 0), |(below, above), (len, stride)| {
            let reach = (len - 1) as i128 * stride as i128;
            (below + reach.min(0), above + reach.max(0))
        })
    }

    /// The same elements in the same order with the fewest axes: axes of length 1 are removed, and an axis that continues
    /// where the next one ends is merged with it.
    pub(crate) fn merged(&self) -> Layout {
        let mut merged = Layout::scalar(self.offset, self.item_size);
        for (len, stride) in self.axes().filter(|axis| axis.0 > 1) {
            match merged.axes().last() {
                Some((outer, far)) if stride.checked_mul(signed(len)) == Some(far) => {
                    merged.axes.set(merged.ndim() - 1, outer * len, stride);
                }
                _ => merged.axes.insert(merged.ndim(), len, stride),
            }
        }
        merged
    }

    /// The error for a layout that must be contiguous and is not.
    pub(crate) fn not_contiguous(&self) -> Error {
        Error::NotContiguous { shape: self.shape().into(), strides: self.strides().into() }
    }

    fn overflow(&self) -> Error {
        Error::SizeOverflow { shape: self.shape().into(), item_size: self.item_size }
    }
}

impl PartialEq for Layout {
    fn eq(&self, other: &Layout) -> bool {
        (self.offset, self.item_size) == (other.offset, other.item_size)
            && self.shape() == other.shape()
            && self.strides() == other.strides()
    }
}

impl Eq for Layout {}

impl Hash for Layout {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.shape(), self.strides(), self.offset, self.item_size).hash(state);
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout")
            .field("shape", &self.shape())
            .field("strides", &self.strides())
            .field("offset", &self.offset)
            .field("item_size", &self.item_size)
            .finish()
    }
}

/// Refuses what no layout can have, whatever its strides.
#[inline]
fn check_shape(shape: &[usize], item_size: usize) -> Result<()> {
    if shape.len() > MAX_DIMS {
        return Err(Error::TooManyDims { found: shape.len(), max: MAX_DIMS });
    }
    if item_size == 0 {
        return Err(Error::ZeroItemSize);
    }
    if let Some(axis) = shape.iter().position(|&len| len == 0) {
        return Err(Error::ZeroDim { axis, shape: shape.into() });
    }
    match shape.iter().try_fold(item_size, |size, &len| size.checked_mul(len)) {
        Some(size) if isize::try_from(size).is_ok() => Ok(()),
        _ => Err(Error::SizeOverflow { shape: shape.into(), item_size }),
    }
}

/// A length or size of a checked layout, none of which is over `isize::MAX`.
#[expect(clippy::cast_possible_wrap, reason = "checked when the layout was made")]
pub(crate) fn signed(n: usize) -> isize {
    debug_assert!(isize::try_from(n).is_ok());
    n as isize
}

/// The byte offset `steps` elements further along an axis. Exact for the places of elements.
pub(crate) fn moved(offset: usize, steps: usize, stride: isize) -> usize {
    let reach = stride.unsigned_abs() * steps;
    if stride < 0 { offset - reach } else { offset + reach }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = isize::MAX.unsigned_abs();
    const ROOT: usize = 1 << (usize::BITS / 2);

    #[test]
    fn a_scalar_has_one_element_and_no_axes() {
        let scalar = Layout::contiguous(&[], 8).unwrap();
        assert_eq!((scalar.ndim(), scalar.len(), scalar.nbytes()), (0, 1, 8));
        assert_eq!(scalar.offset_of(&[]), Some(0));
        assert!(scalar.is_contiguous() && !scalar.is_empty() && !scalar.overlaps_itself());
    }

    #[test]
    fn impossible_shapes_are_refused() {
        use Error::{SizeOverflow, TooManyDims, ZeroDim, ZeroItemSize};
        assert!(matches!(Layout::contiguous(&[1; 9], 1), Err(TooManyDims { found: 9, max: 8 })));
        assert!(matches!(Layout::contiguous(&[2, 0], 1), Err(ZeroDim { axis: 1, .. })));
        assert!(matches!(Layout::contiguous(&[2], 0), Err(ZeroItemSize)));
        for shape in [&[MAX, 2][..], &[MAX + 1], &[ROOT, ROOT], &[ROOT, 4, ROOT, 2]] {
            assert!(matches!(Layout::contiguous(shape, 1), Err(SizeOverflow { .. })), "{shape:?}");
        }
        assert_eq!(Layout::contiguous(&[MAX], 1).unwrap().byte_range(), 0..MAX);
    }

    #[test]
    fn strides_must_match_the_shape_and_stay_in_the_address_space() {
        use Error::{OutOfBuffer, SizeOverflow, StrideCount};
        let strided = Layout::strided;
        assert!(matches!(strided(&[2], &[], 0, 1), Err(StrideCount { dims: 1, strides: 0 })));
        assert!(matches!(
            strided(&[3], &[-2], 3, 1),
            Err(OutOfBuffer { start: -1, end: 4, len: 0 })
        ));
        assert!(matches!(strided(&[2], &[isize::MAX], 0, 1), Err(SizeOverflow { .. })));
        assert!(matches!(strided(&[1], &[0], usize::MAX, 1), Err(SizeOverflow { .. })));
        assert_eq!(strided(&[2], &[isize::MAX - 1], 0, 1).unwrap().byte_range(), 0..MAX);
        assert!(strided(&[1], &[isize::MIN], 0, 1).is_ok());
    }

    #[test]
    fn a_layout_that_leaves_its_buffer_does_not_fit() {
        let layout = Layout::contiguous(&[2, 3], 4).unwrap().with_offset(8).unwrap();
        assert!(layout.fits(32).is_ok());
        assert!(matches!(layout.fits(31), Err(Error::OutOfBuffer { start: 8, end: 32, len: 31 })));
    }

    #[test]
    fn debug_shows_only_the_axes_there_are() {
        let shown = format!("{:?}", Layout::contiguous(&[2, 3], 4).unwrap());
        assert_eq!(shown, "Layout { shape: [2, 3], strides: [12, 4], offset: 0, item_size: 4 }");
    }
}
