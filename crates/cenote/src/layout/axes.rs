//! The lengths and strides of the axes of a layout.
//!
//! As many as images and batches of them have are kept in place, more on the heap: layouts are part of every
//! tensor, and whatever is moved often had better be small.

use super::MAX_DIMS;

/// How many are kept in place.
const FEW: usize = 4;

/// At most [`MAX_DIMS`] axes.
#[derive(Clone)]
pub(super) struct Axes {
    count: usize,
    kept: Kept,
}

/// What is beyond the count may be anything.
#[derive(Clone)]
enum Kept {
    Few([usize; FEW], [isize; FEW]),
    Many(Box<([usize; MAX_DIMS], [isize; MAX_DIMS])>),
}

impl Axes {
    #[inline]
    pub(super) fn none() -> Axes {
        Axes { count: 0, kept: Kept::Few([1; FEW], [0; FEW]) }
    }

    /// Those of elements side by side. That they make sense is known.
    #[inline(always)]
    pub(super) fn packed(count: usize, len_of: impl Fn(usize) -> usize, item_size: usize) -> Axes {
        if count > FEW {
            return Self::packed_many(count, len_of, item_size);
        }
        // Axes that are not there change nothing.
        let len = |axis: usize| if axis < count { len_of(axis) } else { 1 };
        let shape = [len(0), len(1), len(2), len(3)];
        let third = item_size.wrapping_mul(shape[3]);
        let second = third.wrapping_mul(shape[2]);
        let first = second.wrapping_mul(shape[1]);
        let strides = [first, second, third, item_size].map(usize::cast_signed);
        Axes { count, kept: Kept::Few(shape, strides) }
    }

    #[cold]
    fn packed_many(count: usize, len_of: impl Fn(usize) -> usize, item_size: usize) -> Axes {
        let mut axes = Axes::none();
        axes.resize(count);
        let mut stride = item_size;
        for axis in (0..count).rev() {
            axes.set(axis, len_of(axis), stride.cast_signed());
            stride = stride.wrapping_mul(len_of(axis));
        }
        axes
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn shape(&self) -> &[usize] {
        match &self.kept {
            Kept::Few(shape, _) => &shape[..self.count],
            Kept::Many(axes) => &axes.0[..self.count],
        }
    }

    #[inline]
    pub(super) fn strides(&self) -> &[isize] {
        match &self.kept {
            Kept::Few(_, strides) => &strides[..self.count],
            Kept::Many(axes) => &axes.1[..self.count],
        }
    }

    /// Lengths and strides, to be changed.
    #[inline]
    pub(super) fn both_mut(&mut self) -> (&mut [usize], &mut [isize]) {
        let count = self.count;
        match &mut self.kept {
            Kept::Few(shape, strides) => (&mut shape[..count], &mut strides[..count]),
            Kept::Many(axes) => (&mut axes.0[..count], &mut axes.1[..count]),
        }
    }

    /// Changes one axis.
    pub(super) fn set(&mut self, axis: usize, len: usize, stride: isize) {
        let (shape, strides) = self.both_mut();
        (shape[axis], strides[axis]) = (len, stride);
    }

    /// Makes room for so many axes, at most [`MAX_DIMS`], of which new ones may be anything.
    #[inline]
    pub(super) fn resize(&mut self, count: usize) {
        if count > FEW {
            self.spill();
        }
        self.count = count;
    }

    #[cold]
    fn spill(&mut self) {
        if let Kept::Few(few, few_strides) = &self.kept {
            let (mut shape, mut strides) = ([1; MAX_DIMS], [0; MAX_DIMS]);
            shape[..FEW].copy_from_slice(few);
            strides[..FEW].copy_from_slice(few_strides);
            self.kept = Kept::Many(Box::new((shape, strides)));
        }
    }

    /// The caller has made sure that there is room.
    pub(super) fn insert(&mut self, axis: usize, len: usize, stride: isize) {
        let last = self.count;
        self.resize(last + 1);
        let (shape, strides) = self.both_mut();
        shape.copy_within(axis..last, axis + 1);
        strides.copy_within(axis..last, axis + 1);
        self.set(axis, len, stride);
    }

    pub(super) fn remove(&mut self, axis: usize) {
        let (shape, strides) = self.both_mut();
        shape.copy_within(axis + 1.., axis);
        strides.copy_within(axis + 1.., axis);
        self.count -= 1;
    }
}
