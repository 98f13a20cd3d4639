//! Tags for the CPU and GPUs.

pub(crate) mod cuda;
pub(crate) mod device;

pub use device::Device;
