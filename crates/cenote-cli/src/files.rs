//! Tensors as files, and as values to look at.

pub(crate) mod npy;
pub(crate) mod picture;
pub(crate) mod ply;
pub(crate) mod values;
