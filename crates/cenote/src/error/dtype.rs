//! What can go wrong with elements.

macro_rules! dtype {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// A slice was asked for in a type that the elements do not have.
        #[error("the elements are {found}, not {asked}")]
        WrongDType {
            /// The dtype asked for.
            asked: &'static str,
            /// The dtype of the elements.
            found: &'static str,
        },

        /// A name or code that is no dtype.
        #[error(
            "unknown dtype `{given}`; known are f32 f64 f16 bf16 i8..i64 u8..u64 bool \
             complex64 complex128"
        )]
        UnknownDType {
            /// What was given.
            given: Box<str>,
        },

        /// Elements that do not start at a multiple of their alignment.
        #[error("the elements of this view are not aligned to {align} bytes, as {dtype} needs")]
        Misaligned {
            /// The dtype.
            dtype: &'static str,
            /// The alignment it needs.
            align: usize,
        },

        /// Bytes that are not valid values of the dtype (a `bool` that is neither 0 nor 1).
        #[error("the bytes are not all valid values of {dtype}")]
        InvalidValue {
            /// The dtype.
            dtype: &'static str,
        },

        /// Memory that another process can write, asked for as elements that not every byte is.
        #[error(
            "the memory of this tensor can still be written by another process, so its bytes \
             cannot be looked at as {dtype}; copy them out (`to_vec`), or have it sealed against writing"
        )]
        Changeable {
            /// The dtype.
            dtype: &'static str,
        },

        /// A number that cannot be stored.
        #[error("{value} cannot be stored as {dtype}")]
        ValueRange {
            /// The number.
            value: f64,
            /// The dtype.
            dtype: &'static str,
        },
    } };
}
