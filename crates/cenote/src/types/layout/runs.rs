//! Walking the bytes of a layout in order, in the longest steps that its axes allow.

use std::iter::FusedIterator;
use std::ops::Range;

use crate::types::layout::axes::MAX_DIMS;
use crate::types::layout::layout::{Layout, moved, signed};

impl Layout {
    /// The bytes as runs without gaps, in row-major order of the elements: what to copy, piece by
    /// piece, for a packed copy.
    ///
    /// Axes that lie side by side are merged, so all runs have the same length and a contiguous
    /// layout is one run. (Runs that happen to touch across other axes stay apart.)
    ///
    /// ```
    /// use cenote::Layout;
    ///
    /// let padded = Layout::strided(&[2, 3], &[8, 1], 0, 1)?;
    /// assert!(padded.runs().eq([0..3, 8..11]));
    /// assert!(Layout::contiguous(&[2, 3], 4)?.runs().eq([0..24]));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn runs(&self) -> Runs {
        Runs::new(self)
    }
}

/// The byte ranges of a layout, in row-major order of its elements. See [`Layout::runs`].
#[derive(Debug, Clone)]
pub struct Runs {
    /// The axes to walk. What lies side by side along the innermost one is in `run` instead.
    axes: Layout,
    /// Index of the next run along each of the axes.
    index: [usize; MAX_DIMS],
    /// Where the next run starts.
    next: usize,
    /// Bytes of one run.
    run: usize,
    /// Runs still to come.
    left: usize,
}

impl Runs {
    pub(crate) fn new(layout: &Layout) -> Runs {
        let mut axes = layout.merged();
        let mut run = axes.item_size;
        if axes.strides().last() == Some(&signed(run)) {
            let last = axes.ndim() - 1;
            run *= axes.shape()[last];
            axes.axes.remove(last);
        }
        Runs { index: [0; MAX_DIMS], next: axes.offset, run, left: axes.len(), axes }
    }

    /// Counts up like an odometer. After the last run it is back at the first.
    fn advance(&mut self) {
        for axis in (0..self.axes.ndim()).rev() {
            let (len, stride) = (self.axes.shape()[axis], self.axes.strides()[axis]);
            self.index[axis] += 1;
            if self.index[axis] < len {
                self.next = moved(self.next, 1, stride);
                return;
            }
            self.index[axis] = 0;
            self.next = moved(self.next, len - 1, -stride);
        }
    }
}

impl Iterator for Runs {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        self.left = self.left.checked_sub(1)?;
        let start = self.next;
        self.advance();
        Some(start..start + self.run)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Runs {}

impl FusedIterator for Runs {}
