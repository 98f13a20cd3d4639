//! The handle: a buffer, a layout over it, and what its elements are.

pub(crate) mod buffer;
pub(crate) mod copy;
#[cfg(target_os = "linux")]
pub(crate) mod dmabuf;
#[cfg(target_os = "linux")]
pub(crate) mod fd;
pub(crate) mod image;
pub(crate) mod image_layout;
pub(crate) mod map;
#[cfg(feature = "ndarray")]
pub(crate) mod ndarray;
pub(crate) mod options;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub(crate) mod pbo;
#[cfg(target_os = "linux")]
pub(crate) mod planes;
pub(crate) mod rows;
#[cfg(target_os = "linux")]
pub(crate) mod socket;
pub(crate) mod tensor;
pub(crate) mod view;

pub use tensor::Tensor;
