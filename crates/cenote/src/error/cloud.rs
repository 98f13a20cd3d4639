//! What can go wrong with point clouds.

macro_rules! cloud {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// A point that the cloud does not have.
        #[error("there is no point {point} in a cloud of {len} points; the first is point 0")]
        NoSuchPoint {
            /// The point asked for.
            point: usize,
            /// The number of points.
            len: usize,
        },

        /// Rows and columns that do not make the points of a cloud.
        #[error("{len} points cannot be in {height} rows of {width} columns")]
        NotOrganized {
            /// The columns asked for.
            width: usize,
            /// The rows asked for.
            height: usize,
            /// The number of points.
            len: usize,
        },

        /// A tensor that is no point cloud.
        #[error(
            "a tensor of shape {shape:?} with byte strides {strides:?} is no point cloud, which is \
             [points, values] with the values of a point side by side"
        )]
        CloudLayout {
            /// The shape.
            shape: Dims,
            /// The byte strides.
            strides: Box<[isize]>,
        },

        /// Fields that a point cloud cannot have.
        #[error("field `{field}` of a point cloud: {rule}")]
        BadField {
            /// The name of the field.
            field: Box<str>,
            /// What it must be.
            rule: &'static str,
        },

        /// More or fewer fields than a point cloud can have.
        #[error("a point cloud has 1 to {max} fields, not {given}")]
        FieldCount {
            /// The fields given.
            given: usize,
            /// The most there can be.
            max: usize,
        },

        /// A field that a point cloud does not have.
        #[error("the point cloud has no field `{field}`; it has {}", .known.join(", "))]
        NoSuchField {
            /// The name asked for.
            field: Box<str>,
            /// The names there are.
            known: Vec<String>,
        },

        /// More points than there is room for.
        #[error("the point cloud has room for {capacity} points, not for {asked}")]
        CloudFull {
            /// The points asked for.
            asked: usize,
            /// The most that fit.
            capacity: usize,
        },
    } };
}
