//! What can go wrong with cameras.

macro_rules! camera {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// A camera that cannot be opened, set up or captured from.
        #[error("camera {}: {op} failed: {source}", path.display())]
        Camera {
            /// The device.
            path: PathBuf,
            /// What was attempted.
            op: &'static str,
            /// What the system said.
            source: io::Error,
        },

        /// A device that does not capture video.
        #[error("{} is no device that captures video by buffers", path.display())]
        NotACamera {
            /// The device.
            path: PathBuf,
        },

        /// A camera does not have what was asked for.
        #[error("camera {} does not capture {asked}; it offers {found}", path.display())]
        CameraFormat {
            /// The device.
            path: PathBuf,
            /// What was asked for.
            asked: Box<str>,
            /// What it offers instead.
            found: Box<str>,
        },

        /// A camera has nothing left to capture into.
        #[error(
            "camera {} captures nothing: all of its {buffers} buffers are held by those who \
             have frames; have them hold fewer, or ask for more buffers",
            path.display()
        )]
        CameraStarved {
            /// The device.
            path: PathBuf,
            /// The buffers it has.
            buffers: usize,
        },

        /// A camera was used in a forked child.
        #[error("camera {} was inherited through fork; it is the parent's", path.display())]
        CameraForked {
            /// The device.
            path: PathBuf,
        },

        /// A tensor that a camera cannot capture into.
        #[error("camera {} cannot capture into the tensor it was given: {rule}", path.display())]
        CameraBuffer {
            /// The device.
            path: PathBuf,
            /// The rule it breaks.
            rule: &'static str,
        },
    } };
}
