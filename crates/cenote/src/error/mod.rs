//! Errors: a kind that programs match, and a text that people read.

pub(crate) mod error;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub(crate) mod gl;
pub(crate) mod reason;

pub use error::{Error, Result};
#[cfg(all(target_os = "linux", feature = "gl"))]
pub use gl::{GlCode, GlError, GlGone};
pub use reason::{Dims, Holder, Limit, NotWritable, Shortage, Tried, Unavailable};
