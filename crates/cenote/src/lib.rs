//! Memory for tensors.

mod dtype;
mod error;
mod format;
mod layout;

pub use dtype::{DType, Element};
pub use error::{Dims, Error, Limit, NotWritable, Result, Unavailable};
pub use format::{Few, FormatKind, FourCc, ImageShape, PixelFormat, Plane, Planes};
pub use layout::{Layout, MAX_DIMS, Runs};
