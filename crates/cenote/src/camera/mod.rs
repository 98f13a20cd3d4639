//! Cameras: V4L2 devices whose frames are images in DMA-BUFs, without a copy.
//!
//! | opened by | whose buffers | file |
//! |---|---|---|
//! | `Camera::open` | The driver's. A frame leases one, and returns it when the last holder of the frame drops it, in this process or another. | `driver_buffers` |
//! | `Camera::open_into` | The caller's. The driver fills them, and a frame is one of them from then on. | `caller_buffers` |

pub(crate) mod caller_buffers;
pub(crate) mod camera;
pub(crate) mod config;
pub(crate) mod driver_buffers;
pub(crate) mod frame_layout;
pub(crate) mod frame_memory;

pub use camera::{Camera, CameraStats};
