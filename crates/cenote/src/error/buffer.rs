//! What can go wrong with buffers of one process.

macro_rules! buffer {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// More elements than a buffer has room for.
        #[error("the buffer has room for {capacity} elements, {needed} are needed")]
        BufferFull {
            /// Elements that it has room for.
            capacity: usize,
            /// Elements that it would have to hold.
            needed: usize,
        },

        /// The elements that were written are not those of the buffer.
        #[error("`write_with` must return the part that it wrote, from the first element on")]
        NotThePrefix,

        /// A unified buffer that is no longer there.
        #[error("the unified buffer was already released to its pool")]
        Released,

        /// The host side of a unified buffer, which somebody still looks at.
        #[error(
            "the host side of the unified buffer can be neither written nor released while {views} \
             views of it are alive; drop them first"
        )]
        ViewsAlive {
            /// Views that are alive.
            views: usize,
        },

        /// A unified buffer of another pool.
        #[error("the unified buffer belongs to another pool; release it there, or drop it")]
        OtherPool,

        /// A unified buffer that holds nothing yet.
        #[error(
            "nothing was written to this unified buffer yet; write its host or device side first"
        )]
        Unwritten,

        /// A transfer between a host side and a device side of different sizes.
        #[error(
            "the device side has {device} bytes, the host side {host}; a transfer needs as many"
        )]
        TransferLen {
            /// Bytes of the device side.
            device: usize,
            /// Bytes of the host side.
            host: usize,
        },
    } };
}
