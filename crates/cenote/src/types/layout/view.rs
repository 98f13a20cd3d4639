//! Views: other layouts over the same bytes. Nothing is copied, and layouts of a few axes allocate nothing.
//!
//! Strides of axes of length 1 are undefined, so they are never multiplied or negated.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::types::layout::axes::MAX_DIMS;
use crate::types::layout::layout::{Layout, moved, signed};

impl Layout {
    /// `len` elements of an axis, from `start` on.
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// let batch = Layout::contiguous(&[16, 128], 4)?;
    /// let middle = batch.narrow(0, 4, 8)?;
    /// assert_eq!(middle.shape(), [8, 128]);
    /// assert_eq!(middle.offset(), 4 * 128 * 4);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Result<Layout> {
        self.slice(axis, start..start.saturating_add(len), 1)
    }

    /// Every `step`-th element of a range of an axis.
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// let layout = Layout::contiguous(&[10], 4)?;
    /// let odd = layout.slice(0, 1..10, 2)?;
    /// assert_eq!(odd.shape(), [5]);
    /// assert_eq!(odd.strides(), [8]);
    /// assert!(layout.slice(0, 3..3, 1).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn slice(&self, axis: usize, range: Range<usize>, step: usize) -> Result<Layout> {
        let (len, stride) = self.axis(axis)?;
        let Range { start, end } = range;
        if start > len || end > len {
            return Err(Error::OutOfRange { axis, start, end, len });
        }
        if start >= end || step == 0 {
            return Err(Error::EmptyView { axis, start, end, step });
        }
        let mut view = self.clone();
        view.offset = moved(self.offset, start, stride);
        let len = (end - start).div_ceil(step);
        view.axes.set(axis, len, if len > 1 { stride * signed(step) } else { stride });
        Ok(view)
    }

    /// One index of an axis. The view does not have that axis.
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// let frame = Layout::contiguous(&[480, 640, 3], 1)?;
    /// let green = frame.index(2, 1)?;
    /// assert_eq!(green.shape(), [480, 640]);
    /// assert_eq!(green.offset(), 1);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn index(&self, axis: usize, i: usize) -> Result<Layout> {
        let mut view = self.narrow(axis, i, 1)?;
        view.axes.remove(axis);
        Ok(view)
    }

    /// A rectangle of an image: axis 0 is its rows (`y`), axis 1 its columns (`x`).
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// let frame = Layout::contiguous(&[480, 640, 3], 1)?;
    /// let roi = frame.roi(10, 20, 64, 32)?;
    /// assert_eq!(roi.shape(), [32, 64, 3]);
    /// assert_eq!(roi.offset(), 20 * 1920 + 10 * 3);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn roi(&self, x: usize, y: usize, width: usize, height: usize) -> Result<Layout> {
        self.narrow(1, x, width)?.narrow(0, y, height)
    }

    /// The axes in reverse order.
    pub fn transpose(&self) -> Layout {
        let mut view = self.clone();
        let (shape, strides) = view.axes.both_mut();
        shape.reverse();
        strides.reverse();
        view
    }

    /// The axes in another order: axis `i` of the view is axis `axes[i]` of this layout.
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// let hwc = Layout::contiguous(&[480, 640, 3], 1)?;
    /// let chw = hwc.permute(&[2, 0, 1])?;
    /// assert_eq!(chw.shape(), [3, 480, 640]);
    /// assert_eq!(chw.strides(), [1, 1920, 3]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn permute(&self, axes: &[usize]) -> Result<Layout> {
        if !self.is_permutation(axes) {
            return Err(Error::NotAPermutation { axes: axes.into(), ndim: self.ndim() });
        }
        let mut view = self.clone();
        for (to, &from) in axes.iter().enumerate() {
            view.axes.set(to, self.shape()[from], self.strides()[from]);
        }
        Ok(view)
    }

    /// The same elements in the same order, in another shape.
    ///
    /// Succeeds whenever strides for it exist, as in numpy, so also for many layouts that are not
    /// contiguous. Otherwise only a copy could have that shape.
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// let padded = Layout::strided(&[4, 6], &[8, 1], 0, 1)?;
    /// assert_eq!(padded.reshape(&[2, 2, 3, 2])?.strides(), [16, 8, 2, 1]);
    /// assert!(padded.reshape(&[24]).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn reshape(&self, shape: &[usize]) -> Result<Layout> {
        let mut view = Layout::contiguous(shape, self.item_size)?;
        if view.len() != self.len() {
            return Err(Error::ReshapeLen {
                from: self.shape().into(),
                from_len: self.len(),
                to: shape.into(),
                to_len: view.len(),
            });
        }
        view.offset = self.offset;
        if view.split_from(&self.merged()) {
            return Ok(view);
        }
        Err(Error::ReshapeNeedsCopy {
            from: self.shape().into(),
            strides: self.strides().into(),
            to: shape.into(),
        })
    }

    /// Removes an axis of length 1.
    pub fn squeeze(&self, axis: usize) -> Result<Layout> {
        match self.axis(axis)? {
            (1, _) => self.index(axis, 0),
            (len, _) => Err(Error::SqueezeLen { axis, len }),
        }
    }

    /// Inserts an axis of length 1 before `axis`, or behind the last one if `axis` is `ndim`.
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// let image = Layout::contiguous(&[480, 640], 1)?;
    /// assert_eq!(image.unsqueeze(0)?.shape(), [1, 480, 640]);
    /// assert_eq!(image.unsqueeze(2)?.shape(), [480, 640, 1]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn unsqueeze(&self, axis: usize) -> Result<Layout> {
        if axis > self.ndim() {
            return Err(Error::NoSuchAxis { axis, ndim: self.ndim() });
        }
        if self.ndim() == MAX_DIMS {
            return Err(Error::TooManyDims { found: MAX_DIMS + 1, max: MAX_DIMS });
        }
        // The stride that a contiguous layout would have there, so that it stays equal to one.
        let stride = match self.axis(axis) {
            Ok((len, stride)) => stride.saturating_mul(signed(len)),
            Err(_) => signed(self.item_size),
        };
        let mut view = self.clone();
        view.axes.insert(axis, 1, stride);
        Ok(view)
    }

    /// An axis back to front.
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// let upright = Layout::contiguous(&[3, 4], 1)?;
    /// let upside_down = upright.flip(0)?;
    /// assert_eq!(upside_down.offset(), 8);
    /// assert_eq!(upside_down.strides(), [-4, 1]);
    /// assert_eq!(upside_down.flip(0)?, upright);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn flip(&self, axis: usize) -> Result<Layout> {
        let (len, stride) = self.axis(axis)?;
        let mut view = self.clone();
        if len > 1 {
            view.offset = moved(self.offset, len - 1, stride);
            view.axes.set(axis, len, -stride);
        }
        Ok(view)
    }

    fn axis(&self, axis: usize) -> Result<(usize, isize)> {
        self.axes().nth(axis).ok_or(Error::NoSuchAxis { axis, ndim: self.ndim() })
    }

    fn is_permutation(&self, axes: &[usize]) -> bool {
        axes.len() == self.ndim() && (0..self.ndim()).all(|axis| axes.contains(&axis))
    }

    /// Gives this shape the strides that walk the elements of `merged`, which has as many of them;
    /// false if there are none.
    ///
    /// Both are walked from the innermost axis. Each merged axis must be used up by whole axes of
    /// the shape: one that reached into the next merged axis would need two strides, or the two
    /// would have been one.
    fn split_from(&mut self, merged: &Layout) -> bool {
        let mut sources = merged.axes().rev();
        // A scalar has no axis; then all of the shape is 1 and any stride will do.
        let (mut rest, mut stride) = sources.next().unwrap_or((1, signed(self.item_size)));
        for axis in (0..self.ndim()).rev() {
            let len = self.shape()[axis];
            if rest == 1 && len > 1 {
                let Some(source) = sources.next() else { return false };
                (rest, stride) = source;
            }
            if rest % len != 0 {
                return false;
            }
            self.axes.set(axis, len, stride);
            rest /= len;
            // Saturates only where a merged axis is used up, so only axes of length 1 can see it.
            stride = stride.saturating_mul(signed(len));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Layout {
        Layout::contiguous(&[4, 6], 2).unwrap()
    }

    #[test]
    fn axes_that_are_not_there_are_refused() {
        let m = matrix();
        let results =
            [m.narrow(2, 0, 1), m.slice(2, 0..1, 1), m.index(2, 0), m.flip(2), m.squeeze(2)];
        for result in results {
            assert!(matches!(result, Err(Error::NoSuchAxis { axis: 2, ndim: 2 })));
        }
        assert!(matches!(m.unsqueeze(3), Err(Error::NoSuchAxis { axis: 3, ndim: 2 })));
        let row = m.index(0, 0).unwrap();
        assert!(matches!(row.roi(9, 9, 1, 1), Err(Error::NoSuchAxis { axis: 1, ndim: 1 })));
    }

    #[test]
    fn ranges_must_lie_on_the_axis_and_select_something() {
        use Error::{EmptyView, OutOfRange};
        let m = matrix();
        assert!(matches!(m.index(0, 4), Err(OutOfRange { start: 4, end: 5, len: 4, .. })));
        assert!(matches!(m.index(0, usize::MAX), Err(OutOfRange { .. })));
        assert!(matches!(m.narrow(0, 1, usize::MAX), Err(OutOfRange { .. })));
        assert!(matches!(m.roi(3, 0, 4, 1), Err(OutOfRange { axis: 1, start: 3, end: 7, .. })));
        assert!(matches!(m.narrow(0, 1, 0), Err(EmptyView { start: 1, end: 1, .. })));
        assert!(matches!(m.slice(0, 0..4, 0), Err(EmptyView { step: 0, .. })));
        assert_eq!(m.slice(0, 1..4, usize::MAX).unwrap(), m.narrow(0, 1, 1).unwrap());
    }

    #[test]
    fn only_permutations_permute() {
        for axes in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 1]] {
            let error = matrix().permute(axes).unwrap_err();
            assert!(matches!(error, Error::NotAPermutation { ndim: 2, .. }), "{error}");
        }
        assert_eq!(matrix().permute(&[1, 0]).unwrap(), matrix().transpose());
    }

    #[test]
    fn a_reshape_says_why_it_fails() {
        use Error::{ReshapeLen, ReshapeNeedsCopy, SizeOverflow, TooManyDims, ZeroDim};
        let m = matrix();
        assert!(matches!(m.reshape(&[5, 5]), Err(ReshapeLen { from_len: 24, to_len: 25, .. })));
        assert!(matches!(m.reshape(&[0, 24]), Err(ZeroDim { axis: 0, .. })));
        assert!(matches!(m.reshape(&[usize::MAX, 24]), Err(SizeOverflow { .. })));
        assert!(matches!(m.reshape(&[1; 9]), Err(TooManyDims { found: 9, .. })));
        assert!(matches!(m.transpose().reshape(&[24]), Err(ReshapeNeedsCopy { .. })));
    }

    #[test]
    fn axes_of_length_one_come_and_go() {
        let deep = matrix().unsqueeze(1).unwrap();
        assert_eq!(deep, Layout::contiguous(&[4, 1, 6], 2).unwrap());
        assert_eq!(deep.squeeze(1).unwrap(), matrix());
        assert!(matches!(deep.squeeze(0), Err(Error::SqueezeLen { axis: 0, len: 4 })));
        let full = Layout::contiguous(&[1; 8], 1).unwrap();
        assert!(matches!(full.unsqueeze(0), Err(Error::TooManyDims { found: 9, max: 8 })));
    }

    #[test]
    fn the_largest_strides_do_not_overflow() {
        let far = Layout::strided(&[1, 2], &[isize::MIN, isize::MAX - 1], 0, 1).unwrap();
        assert_eq!(far.flip(0).unwrap(), far);
        assert_eq!(far.flip(1).unwrap().flip(1).unwrap(), far);
        assert_eq!(far.unsqueeze(1).unwrap().squeeze(1).unwrap(), far);
        assert_eq!(far.reshape(&[2, 1]).unwrap().len(), 2);
        assert_eq!(far.reshape(&[1, 1, 2]).unwrap().byte_range(), far.byte_range());
        assert_eq!(far.runs().len(), 2);
    }
}
