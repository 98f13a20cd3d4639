//! What can go wrong with the directory that processes meet in.

macro_rules! directory {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// A directory that processes meet in cannot be used.
        #[error("{op} {} failed: {source}", path.display())]
        Directory {
            /// What was attempted.
            op: &'static str,
            /// The directory.
            path: PathBuf,
            /// What the system said.
            source: io::Error,
        },

        /// The directory that processes of this user meet in is not this user's alone.
        #[error(
            "{} belongs to user {owner} with mode {mode:o}; it must be this user's, with mode 700. \
             Remove it, or set CENOTE_DIR to a directory of your own",
            path.display()
        )]
        UntrustedDir {
            /// The directory.
            path: PathBuf,
            /// Its owner.
            owner: u32,
            /// Its mode.
            mode: u32,
        },

        /// Access for others was asked for without a directory that they share.
        #[error("access for others than this user needs CENOTE_DIR to name a directory they share")]
        GroupNeedsDir,

        /// A directory that those whom a pool is for cannot look into.
        #[error(
            "{} (group {group}, mode {mode:o}) is closed to some of those whom the pool is for. \
             Give it to their group and let that look into it (chgrp, chmod g+rx), or use another \
             CENOTE_NAMESPACE or CENOTE_DIR",
            path.display()
        )]
        ClosedDir {
            /// The directory.
            path: PathBuf,
            /// Its group.
            group: u32,
            /// Its mode.
            mode: u32,
        },
    } };
}
