//! Host memory that is used again.
//!
//! [`BufferPool`] hands out typed scratch buffers. All of them stand on one store of untyped
//! blocks:
//!
//! ```text
//! BufferPool ── store ── ledger: the cap, as credit
//!                 ├───── shard of thread 0: bins of blocks, unused credit, counters
//!                 ├───── shard of thread 1
//!                 └───── …
//! Buffer ────── raw ──── block, and the shard that it returns to
//! ```
//!
//! Two things concern all pools of the process: one thread that frees what is idle (`decay`), and a
//! gate that keeps pools whole when the process forks (`gate`).
//!
//! [`MemoryPool`] is the same with shapes and dtypes that are known at run time. What it hands out
//! is a [`UnifiedBuffer`]: a host side and a device side that are kept in step.

mod bins;
mod block;
mod class;
mod credit;
mod decay;
mod device;
mod gate;
mod given_back;
#[cfg(all(target_os = "linux", feature = "gl"))]
mod gl;
mod host;
mod ledger;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
mod memory_pool;
mod pool;
mod raw;
mod seat;
mod settings;
mod shard;
mod size;
mod spare;
mod stats;
mod store;
mod typed;
mod unified;

pub use device::{DeviceAllocator, DeviceMemory, DeviceView, HostDevice};
pub use given_back::GivenBack;
pub use host::{HostLoan, HostView};
pub use memory_pool::{MemoryPool, MemoryPoolStats};
pub use pool::{BufferPool, BufferPoolOptions, Scope};
pub use settings::Shortage;
pub use stats::BufferStats;
pub use typed::{Buffer, UninitBuffer};
pub use unified::{SyncState, UnifiedBuffer};
