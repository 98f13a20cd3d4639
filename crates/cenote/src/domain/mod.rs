//! What a tensor means: images, point clouds, depth images.
//!
//! Each is one tensor, with metadata that travels beside it. How they are allocated in pools and sent on
//! topics is in `ipc/`.

pub(crate) mod cloud;
pub(crate) mod depth;
pub(crate) mod domain;
pub(crate) mod image;

pub use domain::Domain;
