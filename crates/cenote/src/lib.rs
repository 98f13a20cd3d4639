//! Memory for tensors.

pub mod buffer;
mod dtype;
mod error;

pub use buffer::{Buffer, BufferPool, UninitBuffer};
pub use dtype::{DType, Element};
pub use error::{Dims, Error, Limit, NotWritable, Result, Unavailable};
