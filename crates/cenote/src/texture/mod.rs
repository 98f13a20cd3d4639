//! OpenGL textures: made from tensors, read into tensors, or made of DMA-BUFs without a copy.

pub(crate) mod dmabuf_image;
pub(crate) mod import;
pub(crate) mod texel;
pub(crate) mod texel_rows;
pub(crate) mod texture;
pub(crate) mod transfer;

pub use texture::GlTexture;
