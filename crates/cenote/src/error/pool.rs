//! What can go wrong with pools of tensors, and attaching to them.

macro_rules! pool {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// A pool of this name has an owner already.
        #[error("pool `{pool}` belongs to {program} (pid {pid}), which is running")]
        PoolExists {
            /// The pool.
            pool: String,
            /// The process id of its owner; 0 if it cannot be seen from here.
            pid: i32,
            /// The program of its owner.
            program: String,
        },

        /// There is no such pool, or its owner is dead.
        #[error("there is no pool `{pool}`")]
        NoSuchPool {
            /// The pool.
            pool: String,
        },

        /// Connecting to the owner of a pool failed.
        #[error("connecting to the owner of pool `{pool}` failed: {source}")]
        Connect {
            /// The pool.
            pool: String,
            /// What the system said.
            source: io::Error,
        },

        /// The owner of a pool does not answer.
        #[error(
            "the owner of pool `{pool}` (pid {pid}) did not answer for {waited:?}: is it stopped?"
        )]
        NoAnswer {
            /// The pool.
            pool: String,
            /// The process id of its owner; 0 if it is not known.
            pid: i32,
            /// How long it was waited for; zero if not at all.
            waited: Duration,
        },

        /// The owner of a pool refused to let this process attach.
        #[error("attaching to pool `{pool}` was refused: {why}")]
        AttachRefused {
            /// The pool.
            pool: String,
            /// The reason.
            why: &'static str,
        },

        /// The owner of a pool lives, but has closed the pool, or ended the connection.
        #[error("pool `{pool}` is closed: its owner (pid {pid}) has hung up")]
        PoolClosed {
            /// The pool.
            pool: String,
            /// The process id of its owner; 0 if it cannot be seen from here.
            pid: i32,
        },

        /// Something that only the owner of a pool can do.
        #[error(
            "{op} is for the owner of pool `{pool}` (pid {pid}); this process is attached to read"
        )]
        NotOwner {
            /// What was attempted.
            op: &'static str,
            /// The pool.
            pool: String,
            /// The process id of its owner.
            pid: i32,
        },

        /// Every slot, or every byte, of a pool is in use.
        #[error(
            "pool `{pool}` has no room for {asked} bytes: {why}; \
             {} of {} slots and {} of {} bytes are in use{}",
            slots.0, slots.1, bytes.0, bytes.1, list(holders)
        )]
        PoolFull {
            /// The pool.
            pool: String,
            /// Bytes asked for.
            asked: usize,
            /// Why that is too much.
            why: Shortage,
            /// Slots in use, and the most there can be.
            slots: (usize, usize),
            /// Bytes in use, and the most there can be.
            bytes: (usize, usize),
            /// Who holds them, those first that hold most of what the owner let go of.
            holders: Vec<Holder>,
        },

        /// This process holds as many slots of a pool as it may.
        #[error(
            "this process holds {max} slots of pool `{pool}`, all that its `max_leases` allows"
        )]
        TooManyLeases {
            /// The pool.
            pool: String,
            /// The limit.
            max: u32,
        },

        /// The owner of a pool has disconnected this process, because it held too much.
        #[error(
            "the owner of pool `{pool}` has disconnected this process, which held {held} slots \
             that the owner had let go of; its `max_leases` allows {max}"
        )]
        Expelled {
            /// The pool.
            pool: String,
            /// What this process held.
            held: u32,
            /// What it may hold.
            max: u32,
        },

        /// A file descriptor was asked of a tensor that shares its memory with others.
        #[error("a tensor of a pool has no {wanted} of its own; send its `descriptor` instead")]
        PooledFd {
            /// What was asked for.
            wanted: &'static str,
        },

        /// A pool, or a tensor of one, was used in a forked child.
        #[error(
            "pool `{pool}` was inherited through fork; open it again in this process to use it"
        )]
        Forked {
            /// The pool.
            pool: String,
        },
    } };
}
