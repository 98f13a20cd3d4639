//! Memory shared with other Python libraries, without a copy where that is possible.

mod anchored;
pub(crate) mod buffer_protocol;
pub(crate) mod dlpack;
pub(crate) mod export;
pub(crate) mod numpy_array;
pub(crate) mod torch_jax;
