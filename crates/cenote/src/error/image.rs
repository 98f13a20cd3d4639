//! What can go wrong with pixel formats and images.

macro_rules! image {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// A name or code that is no pixel format.
        #[error("unknown pixel format `{given}`")]
        UnknownFormat {
            /// What was given.
            given: Box<str>,
        },

        /// A shape that an image of this format cannot have.
        #[error("shape {shape:?} does not fit pixel format {format}, which needs {expected}")]
        FormatShape {
            /// The format.
            format: &'static str,
            /// The shape.
            shape: Dims,
            /// What the format needs.
            expected: &'static str,
        },

        /// A dtype that the format does not have.
        #[error("pixel format {format} has {expected} samples, the tensor holds {found}")]
        FormatDType {
            /// The format.
            format: &'static str,
            /// The dtype of its samples.
            expected: &'static str,
            /// The dtype of the tensor.
            found: &'static str,
        },

        /// Strides that do not make rows of pixels.
        #[error("shape {shape:?} with byte strides {strides:?} is not rows of {format} pixels")]
        FormatLayout {
            /// The format.
            format: &'static str,
            /// The shape.
            shape: Dims,
            /// The byte strides.
            strides: Box<[isize]>,
        },

        /// A change of layout asked of an image whose planes lie in different places.
        #[error(
            "{op} does not apply: the planes of this image do not follow each other in one buffer"
        )]
        FarPlanes {
            /// The call.
            op: &'static str,
        },

        /// A question about an image put to a tensor without a pixel format.
        #[error("{op} needs a pixel format: call `set_format` first")]
        NoFormat {
            /// The call.
            op: &'static str,
        },

        /// A row stride that is too small, or not a multiple of what the format needs.
        #[error(
            "row stride {given} does not fit a {width}-pixel row of {format}: \
             it must be at least {min} and a multiple of {multiple}"
        )]
        BadRowStride {
            /// The stride in bytes.
            given: usize,
            /// The smallest that fits.
            min: usize,
            /// What it must be a multiple of.
            multiple: usize,
            /// The width in pixels.
            width: usize,
            /// The format.
            format: &'static str,
        },

        /// A region of an image that cannot be cut out without a copy.
        #[error(
            "the region at ({x}, {y}) splits a {unit_width}x{unit_height} pixel group of {format}; \
             x and y must be multiples of it"
        )]
        UnalignedRoi {
            /// Left edge.
            x: usize,
            /// Top edge.
            y: usize,
            /// Width of a pixel group.
            unit_width: usize,
            /// Height of a pixel group.
            unit_height: usize,
            /// The format.
            format: &'static str,
        },

        /// A plane that the image does not have.
        #[error("there is no plane {index}: {format} has {planes}, counted from 0")]
        NoSuchPlane {
            /// The format, or that there is none.
            format: &'static str,
            /// Planes there are.
            planes: usize,
            /// The plane asked for.
            index: usize,
        },

        /// Another number of planes than the format has.
        #[error("pixel format {format} has {expected} planes, not {given}")]
        PlaneCount {
            /// The format.
            format: &'static str,
            /// Planes of the format.
            expected: usize,
            /// Planes given.
            given: usize,
        },

        /// An image, or part of one, without pixels.
        #[error("an image of {width}x{height} has no pixels")]
        EmptyImage {
            /// The width asked for.
            width: usize,
            /// The height asked for.
            height: usize,
        },

        /// A rectangle that the image does not have.
        #[error(
            "the {width}x{height} pixels from ({x}, {y}) on are not all in an image of {}x{}",
            image.0,
            image.1
        )]
        NoSuchRoi {
            /// The first column asked for.
            x: usize,
            /// The first row asked for.
            y: usize,
            /// The width asked for.
            width: usize,
            /// The height asked for.
            height: usize,
            /// Width and height of the image.
            image: (usize, usize),
        },

        /// A pixel that the image does not have.
        #[error("pixel ({x}, {y}) is outside an image of {width}x{height}")]
        NoSuchPixel {
            /// The column asked for.
            x: usize,
            /// The row asked for.
            y: usize,
            /// The width of the image.
            width: usize,
            /// The height of the image.
            height: usize,
        },

        /// More or fewer values than a pixel has.
        #[error("a pixel of {format} has {expected} values, not {given}")]
        PixelLen {
            /// The format.
            format: &'static str,
            /// The values of a pixel.
            expected: usize,
            /// The values given.
            given: usize,
        },

        /// Two images that ought to be alike.
        #[error("the image is {expected}, the one to copy is {given}")]
        OtherImage {
            /// Format and size of the image.
            expected: Box<str>,
            /// Format and size of the other.
            given: Box<str>,
        },

        /// Not the bytes of an image.
        #[error("an image with rows {step} bytes apart has {expected} bytes, not {given}")]
        ImageBytes {
            /// The bytes of the image.
            expected: usize,
            /// The bytes given.
            given: usize,
            /// The distance of the rows.
            step: usize,
        },

        /// A file with an image that could not be read or written.
        #[error("{op} {path:?} failed: {source}")]
        ImageFile {
            /// What was attempted.
            op: &'static str,
            /// The file.
            path: PathBuf,
            /// What went wrong.
            source: Box<dyn std::error::Error + Send + Sync>,
        },
    } };
}
