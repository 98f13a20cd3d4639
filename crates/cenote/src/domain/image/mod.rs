//! Images of every pixel format.

#[cfg(feature = "image")]
pub(crate) mod convert;
pub(crate) mod copy;
pub(crate) mod image;
pub(crate) mod pixel;

pub use image::Image;
