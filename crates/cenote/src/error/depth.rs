//! What can go wrong with depth images.

macro_rules! depth {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// A depth that cannot be stored.
        #[error("a depth of {metres} m cannot be stored as {dtype}: {rule}")]
        DepthRange {
            /// The depth, in metres.
            metres: f32,
            /// What the image stores.
            dtype: &'static str,
            /// What can be.
            rule: &'static str,
        },

        /// Elements that cannot be depths.
        #[error("a depth image is f32 (metres) or u16 (millimetres), not {found}")]
        DepthDType {
            /// The dtype given.
            found: &'static str,
        },

        /// Numbers that are no pinhole camera.
        #[error("fx {fx}, fy {fy}, cx {cx}, cy {cy}: all must be finite, fx and fy above 0")]
        BadIntrinsics {
            /// Focal length in pixels, across.
            fx: f64,
            /// Focal length in pixels, down.
            fy: f64,
            /// Column of the optical centre.
            cx: f64,
            /// Row of the optical centre.
            cy: f64,
        },

        /// A depth image without intrinsics cannot be seen in space.
        #[error("the depth image has no intrinsics; set them first (`set_intrinsics`)")]
        NoIntrinsics,
    } };
}
