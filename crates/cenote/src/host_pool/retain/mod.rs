//! The machinery behind all pools: blocks, and how they are retained.
//!
//! ```text
//! Store ─── FreeCache ─┬─ ledger: the cap, and the part of it that no shard has
//!           (static)   ├─ shard 0: bins of blocks, its share of the cap, counters
//!                      ├─ shard 1
//!                      └─ …
//! RawBuffer ── Block ──── its FreeCache, as a BlockOwner, and the number of its shard
//!
//! process: the registry of all caches, the decay thread, fork
//! ```

mod amount;
mod bins;
mod block;
mod free_cache;
#[cfg(all(test, loom))]
mod loom_tests;
mod process;
mod raw_buffer;
mod settings;
mod shard;
mod store;

pub(super) use amount::Amount;
pub(super) use block::{Block, Extras, Fill, Fit, MAPPED_FROM};
pub(super) use process::registry;
pub(super) use raw_buffer::RawBuffer;
pub use settings::LimitReached;
pub(super) use settings::{OnLimit, Settings};
pub(super) use store::{Store, too_large};
