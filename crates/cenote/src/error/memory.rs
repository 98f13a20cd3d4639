//! What can go wrong with memory, and who may write it.

macro_rules! memory {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// An alignment that is not a power of two, or too large.
        #[error("alignment {given} is not a power of two between 1 and {max}")]
        BadAlignment {
            /// The alignment asked for.
            given: usize,
            /// The largest supported.
            max: usize,
        },

        /// A name or code that is no memory kind.
        #[error("unknown memory kind `{given}`; known are mem, dma, shm, pbo")]
        UnknownMemory {
            /// What was given.
            given: Box<str>,
        },

        /// A name that is no device.
        #[error("unknown device `{given}`; known are cpu, cuda and cuda:N")]
        UnknownDevice {
            /// What was given.
            given: Box<str>,
        },

        /// A memory kind that cannot be had here.
        #[error("{memory} memory is not available: {why}")]
        Unavailable {
            /// The memory kind.
            memory: &'static str,
            /// The reason.
            why: Unavailable,
        },

        /// Memory that is not there.
        #[error("{asked} bytes do not fit in the {available} bytes left under {limit}")]
        OutOfMemory {
            /// Bytes asked for.
            asked: usize,
            /// Bytes that could still be had.
            available: usize,
            /// What limits them.
            limit: Limit,
        },

        /// Mutable access to memory that must not change.
        #[error("the tensor cannot be written: {why}; `make_mut` copies it into memory of its own")]
        NotWritable {
            /// Why it must not change.
            why: NotWritable,
        },

        /// A tensor was to be shared with another process while somebody has borrowed it to write.
        #[error(
            "the bytes are lent to somebody who may write them (a writable array, say); drop \
             that, or send a copy"
        )]
        Lent,
    } };
}
