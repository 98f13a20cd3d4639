//! Shape, byte strides and offset of a tensor, and the arithmetic over them.

pub(crate) mod axes;
pub(crate) mod layout;
pub(crate) mod runs;
pub(crate) mod view;

pub use axes::MAX_DIMS;
pub use layout::Layout;
