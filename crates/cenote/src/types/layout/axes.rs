//! The lengths and strides of the axes of a layout.
//!
//! Up to four axes are stored in place, which is enough for images and batches of them. More are on the heap. A layout is
//! part of every tensor and moves often, so it should be small.

/// The most dimensions that a [`Layout`](crate::Layout) can have.
pub const MAX_DIMS: usize = 8;

/// How many axes are stored in place.
const IN_PLACE: usize = 4;

/// At most [`MAX_DIMS`] axes.
///
/// Not an enum, so that cloning is copying words and one test.
pub(crate) struct Axes {
    count: usize,
    /// The bytes of all elements, if they are known to be contiguous; 0 if not.
    packed: usize,
    /// The axes in place. Elements beyond the count are undefined.
    shape: [usize; IN_PLACE],
    strides: [isize; IN_PLACE],
    /// All axes, once there were more than that. Then the two arrays above are not used.
    many: Option<Box<Many>>,
}

/// Elements beyond the count are undefined here, too.
type Many = ([usize; MAX_DIMS], [isize; MAX_DIMS]);

impl Clone for Axes {
    #[inline]
    fn clone(&self) -> Axes {
        // First, so that the compiler copies the words directly to their destination.
        let many = self.many.clone();
        Axes { many, ..*self }
    }
}

impl Axes {
    #[inline]
    pub(crate) fn none() -> Axes {
        Axes { count: 0, packed: 0, shape: [1; IN_PLACE], strides: [0; IN_PLACE], many: None }
    }

    /// The axes of contiguous elements. The caller has checked that their size does not overflow.
    #[inline(always)]
    pub(crate) fn packed(count: usize, len_of: impl Fn(usize) -> usize, item_size: usize) -> Axes {
        if count > IN_PLACE {
            return Self::packed_many(count, len_of, item_size);
        }
        // An axis that does not exist has length 1, which changes nothing.
        let len = |axis: usize| if axis < count { len_of(axis) } else { 1 };
        let shape = [len(0), len(1), len(2), len(3)];
        let third = item_size.wrapping_mul(shape[3]);
        let second = third.wrapping_mul(shape[2]);
        let first = second.wrapping_mul(shape[1]);
        let packed = first.wrapping_mul(shape[0]);
        let strides = [first, second, third, item_size].map(usize::cast_signed);
        Axes { count, packed, shape, strides, many: None }
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

    /// The bytes of all elements, if they are known to be contiguous.
    #[inline]
    pub(crate) fn packed_len(&self) -> Option<usize> {
        (self.packed != 0).then_some(self.packed)
    }

    /// Notes that the elements are contiguous, and their bytes.
    pub(crate) fn set_packed(&mut self, bytes: usize) {
        self.packed = bytes;
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn shape(&self) -> &[usize] {
        match &self.many {
            None => &self.shape[..self.count],
            Some(many) => &many.0[..self.count],
        }
    }

    #[inline]
    pub(crate) fn strides(&self) -> &[isize] {
        match &self.many {
            None => &self.strides[..self.count],
            Some(many) => &many.1[..self.count],
        }
    }

    /// Lengths and strides, for writing.
    #[inline]
    pub(crate) fn both_mut(&mut self) -> (&mut [usize], &mut [isize]) {
        let count = self.count;
        self.packed = 0; // the caller may change anything
        match &mut self.many {
            None => (&mut self.shape[..count], &mut self.strides[..count]),
            Some(many) => (&mut many.0[..count], &mut many.1[..count]),
        }
    }

    /// Changes one axis.
    pub(crate) fn set(&mut self, axis: usize, len: usize, stride: isize) {
        let (shape, strides) = self.both_mut();
        (shape[axis], strides[axis]) = (len, stride);
    }

    /// Sets the number of axes, at most [`MAX_DIMS`]. New axes are undefined.
    #[inline]
    pub(crate) fn resize(&mut self, count: usize) {
        if count > IN_PLACE {
            self.spill();
        }
        self.count = count;
        self.packed = 0;
    }

    #[cold]
    fn spill(&mut self) {
        if self.many.is_none() {
            let (mut shape, mut strides) = ([1; MAX_DIMS], [0; MAX_DIMS]);
            shape[..IN_PLACE].copy_from_slice(&self.shape);
            strides[..IN_PLACE].copy_from_slice(&self.strides);
            self.many = Some(Box::new((shape, strides)));
        }
    }

    /// Inserts an axis. The caller has checked that there are fewer than [`MAX_DIMS`].
    pub(crate) fn insert(&mut self, axis: usize, len: usize, stride: isize) {
        let last = self.count;
        self.resize(last + 1);
        let (shape, strides) = self.both_mut();
        shape.copy_within(axis..last, axis + 1);
        strides.copy_within(axis..last, axis + 1);
        self.set(axis, len, stride);
    }

    pub(crate) fn remove(&mut self, axis: usize) {
        let (shape, strides) = self.both_mut();
        shape.copy_within(axis + 1.., axis);
        strides.copy_within(axis + 1.., axis);
        self.count -= 1;
    }
}
