//! The handle: a buffer, a layout over it, and the type of its elements.
//!
//! | file | what a tensor does there |
//! |---|---|
//! | `tensor` | the handle itself: what it is, and mapping it |
//! | `options` | allocate |
//! | `adopt` | take over memory that the caller owns |
//! | `map` | guards through which the CPU reads and writes |
//! | `view` | other layouts over the same buffer |
//! | `copy` | copies |
//! | `image/` | pixel formats and planes |
//! | `fd`, `socket`, `dmabuf` | share memory with other processes and devices |
//! | `pbo`, `ndarray` | OpenGL buffers, and arrays of the `ndarray` crate |
//! | `buffer/` | the memory behind the handles: who may write it, and when it ends |

pub(crate) mod adopt;
pub(crate) mod buffer;
pub(crate) mod copy;
#[cfg(target_os = "linux")]
pub(crate) mod dmabuf;
#[cfg(target_os = "linux")]
pub(crate) mod fd;
pub(crate) mod image;
pub(crate) mod map;
#[cfg(feature = "ndarray")]
pub(crate) mod ndarray;
pub(crate) mod options;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub(crate) mod pbo;
#[cfg(target_os = "linux")]
pub(crate) mod socket;
pub(crate) mod tensor;
pub(crate) mod view;

pub use tensor::Tensor;
