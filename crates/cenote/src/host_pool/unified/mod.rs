//! Buffers with a host side and a device side, and the devices.

mod device;
#[cfg(all(target_os = "linux", feature = "gl"))]
mod gl;
mod host_side;
mod unified_buffer;

pub use device::{DeviceAllocator, DeviceMemory, DeviceView, HostDevice};
pub use host_side::{HostLoan, HostView};
pub use unified_buffer::{SyncState, UnifiedBuffer};
