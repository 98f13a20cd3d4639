//! Video capture (V4L2) into tensors.

#[cfg(all(feature = "camera", target_os = "linux", target_pointer_width = "64"))]
pub(crate) mod camera;
#[cfg(all(feature = "camera", target_os = "linux", target_pointer_width = "64"))]
pub(crate) mod config;
#[cfg(all(feature = "camera", target_os = "linux", target_pointer_width = "64"))]
pub(crate) mod given;
#[cfg(all(feature = "camera", target_os = "linux", target_pointer_width = "64"))]
pub(crate) mod lent;

pub use camera::{Camera, CameraStats};
