//! Shape, byte strides and offset of a tensor, and the arithmetic over them.

pub(crate) mod axes;
pub(crate) mod layout;
pub(crate) mod runs;
pub(crate) mod view;

pub use layout::{Layout, MAX_DIMS};
pub(crate) use layout::{moved, signed};
