//! Pools of host memory for one process.
//!
//! [`BufferPool`] hands out typed scratch buffers. [`MemoryPool`] does the same for shapes and dtypes
//! that are known at run time. It hands out [`UnifiedBuffer`]s: a host side and a device side, copied
//! when the side in use is older.
//!
//! Both retain the blocks of dropped buffers up to a cap, and free blocks that stay idle. How they do
//! that is in `retain`.

mod buffer;
mod byte_size;
mod memory_pool;
mod pool;
mod rejected;
mod retain;
mod stats;
mod unified;

pub use buffer::{Buffer, UninitBuffer};
pub use memory_pool::{MemoryPool, MemoryPoolStats};
pub use pool::{BufferPool, BufferPoolOptions, Scope};
pub use rejected::Rejected;
pub use retain::LimitReached;
pub use stats::BufferStats;
pub use unified::{
    DeviceAllocator, DeviceMemory, DeviceView, HostDevice, HostLoan, HostView, SyncState,
    UnifiedBuffer,
};
