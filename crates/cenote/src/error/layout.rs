//! What can go wrong with shapes, strides and views.

macro_rules! layout {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// More dimensions than a layout can hold.
        #[error("a layout has at most {max} dimensions, this one asks for {found}")]
        TooManyDims {
            /// Dimensions asked for.
            found: usize,
            /// The most that are supported.
            max: usize,
        },

        /// A dimension of length zero.
        #[error("dimension {axis} of shape {shape:?} is zero; every dimension must be at least 1")]
        ZeroDim {
            /// The dimension that is zero.
            axis: usize,
            /// The whole shape.
            shape: Dims,
        },

        /// Elements of zero bytes.
        #[error("an element must have at least one byte")]
        ZeroItemSize,

        /// The size in bytes does not fit the address space.
        #[error("shape {shape:?} with {item_size}-byte elements overflows the address space")]
        SizeOverflow {
            /// The shape asked for.
            shape: Dims,
            /// Bytes of one element.
            item_size: usize,
        },

        /// Shape and strides have different lengths.
        #[error("shape has {dims} dimensions but {strides} strides were given")]
        StrideCount {
            /// Dimensions of the shape.
            dims: usize,
            /// Strides given.
            strides: usize,
        },

        /// A layout that reaches outside its buffer.
        #[error("the layout covers bytes {start}..{end} but the buffer has {len} bytes")]
        OutOfBuffer {
            /// First byte covered (negative: before the buffer).
            start: i128,
            /// One past the last byte covered.
            end: i128,
            /// Bytes in the buffer.
            len: usize,
        },

        /// An axis that the tensor does not have.
        #[error("axis {axis} is out of range for {ndim} dimensions")]
        NoSuchAxis {
            /// The axis asked for.
            axis: usize,
            /// Dimensions there are.
            ndim: usize,
        },

        /// A range or index beyond the end of an axis.
        #[error("{start}..{end} is out of range for axis {axis} of length {len}")]
        OutOfRange {
            /// The axis.
            axis: usize,
            /// First index asked for.
            start: usize,
            /// One past the last index asked for.
            end: usize,
            /// Length of the axis.
            len: usize,
        },

        /// A view that would have no elements.
        #[error("the range {start}..{end} with step {step} on axis {axis} selects nothing")]
        EmptyView {
            /// The axis.
            axis: usize,
            /// First index asked for.
            start: usize,
            /// One past the last index asked for.
            end: usize,
            /// The step asked for.
            step: usize,
        },

        /// Axes that are not a permutation.
        #[error("{axes:?} is not a permutation of the {ndim} axes")]
        NotAPermutation {
            /// The axes given.
            axes: Dims,
            /// Dimensions there are.
            ndim: usize,
        },

        /// A reshape to another number of elements.
        #[error("shape {from:?} has {from_len} elements, shape {to:?} has {to_len}")]
        ReshapeLen {
            /// The shape there is.
            from: Dims,
            /// Its number of elements.
            from_len: usize,
            /// The shape asked for.
            to: Dims,
            /// Its number of elements.
            to_len: usize,
        },

        /// A reshape that only a copy could give.
        #[error(
            "shape {from:?} with byte strides {strides:?} cannot be seen as {to:?} without a copy; \
             copy it first (`to_contiguous`)"
        )]
        ReshapeNeedsCopy {
            /// The shape there is.
            from: Dims,
            /// Its byte strides.
            strides: Box<[isize]>,
            /// The shape asked for.
            to: Dims,
        },

        /// Squeezing an axis that is longer than one.
        #[error("axis {axis} has length {len}; only an axis of length 1 can be squeezed")]
        SqueezeLen {
            /// The axis.
            axis: usize,
            /// Its length.
            len: usize,
        },

        /// A slice of elements was asked for where they do not lie side by side.
        #[error(
            "shape {shape:?} with byte strides {strides:?} is not contiguous; \
             copy it (`to_contiguous`) or look at it by rows or as an ndarray"
        )]
        NotContiguous {
            /// The shape.
            shape: Dims,
            /// The byte strides.
            strides: Box<[isize]>,
        },

        /// An index that the tensor does not have.
        #[error("index {index:?} is out of range for shape {shape:?}")]
        BadIndex {
            /// The index.
            index: Dims,
            /// The shape.
            shape: Dims,
        },

        /// A layout made for elements of another size.
        #[error("the layout is for elements of {layout} bytes, but {dtype} has {size}")]
        ItemSize {
            /// Bytes of an element in the layout.
            layout: usize,
            /// The dtype.
            dtype: &'static str,
            /// Bytes of an element of the dtype.
            size: usize,
        },

        /// Byte strides that are no multiples of the element's size.
        #[error(
            "byte strides {strides:?} are not multiples of the {item_size} bytes of an element"
        )]
        OddStrides {
            /// The byte strides.
            strides: Box<[isize]>,
            /// Bytes of one element.
            item_size: usize,
        },

        /// Mutable access to elements that share bytes.
        #[error("elements of shape {shape:?} with byte strides {strides:?} overlap each other")]
        Overlapping {
            /// The shape.
            shape: Dims,
            /// The byte strides.
            strides: Box<[isize]>,
        },

        /// Data of another length than the shape.
        #[error("shape {shape:?} has {expected} elements but {given} were given")]
        WrongLen {
            /// The shape.
            shape: Dims,
            /// Its number of elements.
            expected: usize,
            /// Elements given.
            given: usize,
        },
    } };
}
