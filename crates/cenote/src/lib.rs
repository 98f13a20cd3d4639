//! Memory for tensors.

mod dtype;
mod error;

pub use dtype::{DType, Element};
pub use error::{Dims, Error, Limit, NotWritable, Result, Unavailable};
