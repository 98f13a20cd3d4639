//! Memory for tensors.

mod dtype;
mod error;
mod memory;
mod os;

pub use dtype::{DType, Element};
pub use error::{Dims, Error, Limit, NotWritable, Result, Unavailable};
