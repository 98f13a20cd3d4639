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

mod bins;
mod block;
mod class;
mod credit;
#[cfg_attr(not(target_os = "linux"), path = "pages_none.rs")]
mod pages;
mod pool;
mod raw;
mod seat;
mod shard;
mod size;
mod stats;
mod store;
mod typed;

pub use pool::{BufferPool, BufferPoolOptions, Scope};
pub use stats::BufferStats;
pub use store::Shortage;
pub use typed::{Buffer, UninitBuffer};
