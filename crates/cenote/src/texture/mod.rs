//! Tensors as OpenGL textures, and DMA-BUFs as textures.

#[cfg(all(target_os = "linux", feature = "gl"))]
pub(crate) mod dmabuf;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub(crate) mod rows;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub(crate) mod texel;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub(crate) mod texture;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub(crate) mod transfer;

pub use texture::GlTexture;
pub(crate) use texture::{Source, generate, set_parameters};
