//! Tensors that are images: their pixel format, their planes, and where those lie.

pub(crate) mod geometry;
pub(crate) mod image;
pub(crate) mod image_layout;
#[cfg(target_os = "linux")]
pub(crate) mod plane_descriptor;
