//! What can go wrong with file descriptors, and tensors sent over a socket.

macro_rules! fd {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// A file descriptor was asked of memory that has none.
        #[error("{memory} memory has no {wanted}; allocate the tensor in {instead}")]
        NoFd {
            /// The memory kind of the tensor.
            memory: &'static str,
            /// What was asked for.
            wanted: &'static str,
            /// What would have it.
            instead: &'static str,
        },

        /// A file descriptor that is neither a memfd nor a DMA-BUF.
        #[error("the file descriptor is {found}, neither shared memory (memfd) nor a DMA-BUF")]
        WrongFdKind {
            /// What it is.
            found: &'static str,
        },

        /// A file descriptor with fewer bytes than the tensor needs.
        #[error("the file descriptor has {size} bytes, the tensor needs {needed}")]
        FdTooSmall {
            /// Bytes that the tensor needs.
            needed: usize,
            /// Bytes that there are.
            size: u64,
        },

        /// A memfd that somebody could still shrink under us.
        #[error(
            "the shared memory is not sealed against shrinking (F_SEAL_SHRINK): \
             whoever shares it could truncate it and crash its readers"
        )]
        Unsealed,

        /// A file descriptor opened in a mode that does not allow the import.
        #[error("the shared memory cannot be mapped {access}: {why}")]
        FdAccess {
            /// The access asked for.
            access: &'static str,
            /// Why it is refused.
            why: &'static str,
        },

        /// A socket that cannot carry file descriptors.
        #[error("the socket is not a Unix socket, so it cannot carry a tensor")]
        NotUnixSocket,

        /// A message from a peer that is not one of ours, or is damaged.
        #[error("the peer sent something that is not a tensor: {what}")]
        BadMessage {
            /// What is wrong with it.
            what: &'static str,
        },

        /// The peer closed the connection.
        #[error(
            "the peer closed the connection{}",
            if *.mid_message { " in the middle of a tensor" } else { "" }
        )]
        Disconnected {
            /// Whether part of a message had arrived.
            mid_message: bool,
        },
    } };
}
