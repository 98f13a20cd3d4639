//! What a tensor means: images, point clouds, depth images.

pub(crate) mod cloud;
pub(crate) mod depth;
pub(crate) mod domain;
pub(crate) mod image;

pub use domain::Domain;
pub(crate) use domain::{check_roi, check_size, sealed, tensor_accessors};
#[cfg(target_os = "linux")]
pub(crate) use domain::{describe, import};
