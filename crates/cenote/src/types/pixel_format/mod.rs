//! Pixel formats, and the geometry of images that follows from them.

pub(crate) mod arrangement;
pub(crate) mod few;
pub(crate) mod fourcc;
pub(crate) mod geometry;
pub(crate) mod pixel_format;
pub(crate) mod sample;

pub use pixel_format::{FormatKind, PixelFormat};
