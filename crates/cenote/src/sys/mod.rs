//! Thin wrappers over the kernel and the C library, one a file. They return `io::Result` and decide nothing.
//!
//! Only Linux is supported. Elsewhere this module is empty, and the kinds of memory that need it report that they are
//! unavailable.

#[cfg(target_os = "linux")]
pub(crate) mod available_memory;
#[cfg(target_os = "linux")]
pub(crate) mod dmabuf;
#[cfg(all(feature = "gl", target_os = "linux"))]
pub(crate) mod drop_callbacks;
#[cfg(target_os = "linux")]
pub(crate) mod epoll;
#[cfg(target_os = "linux")]
pub(crate) mod exit;
#[cfg(target_os = "linux")]
pub(crate) mod fork;
#[cfg(target_os = "linux")]
pub(crate) mod malloc;
#[cfg(target_os = "linux")]
pub(crate) mod mapping;
#[cfg(target_os = "linux")]
pub(crate) mod memfd;
#[cfg(all(
    any(feature = "gl", all(feature = "camera", target_pointer_width = "64")),
    target_os = "linux"
))]
pub(crate) mod process_lock;
#[cfg(target_os = "linux")]
pub(crate) mod socket;
#[cfg(target_os = "linux")]
pub(crate) mod thread;
#[cfg(all(feature = "camera", target_os = "linux", target_pointer_width = "64"))]
pub(crate) mod v4l2;
