//! What can go wrong with descriptors.

macro_rules! descriptor {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// A descriptor whose tensor is gone.
        #[error(
            "the tensor that the descriptor names is gone: pool `{pool}` has reused its memory"
        )]
        Stale {
            /// The pool.
            pool: String,
        },

        /// A descriptor of something that the pool cannot have.
        #[error("the descriptor names slot {slot}, but pool `{pool}` has {max} slots")]
        NoSuchSlot {
            /// The pool.
            pool: String,
            /// The slot.
            slot: u32,
            /// The slots there are.
            max: u32,
        },

        /// A descriptor of a segment that did not arrive.
        #[error("segment {segment} of pool `{pool}` cannot be had; is its owner alive?")]
        NoSuchSegment {
            /// The pool.
            pool: String,
            /// The segment.
            segment: u32,
        },

        /// A descriptor was asked of a tensor that is in no pool.
        #[error("the tensor is in no pool, so it has no descriptor")]
        NoDescriptor,

        /// A descriptor of something else than was asked for.
        #[error("`{asked}` was asked for, but the descriptor is for {found}")]
        WrongKind {
            /// What was asked for.
            asked: &'static str,
            /// What the descriptor says.
            found: &'static str,
        },
    } };
}
