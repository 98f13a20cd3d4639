//! The machinery behind all pools: blocks, and how they are retained.
//!
//! ```text
//! Store ─── FreeCache ─┬─ ledger: the cap, and the part of it that no shard has
//!           (static)   ├─ shard 0: bins of blocks, its share of the cap, counters
//!                      ├─ shard 1
//!                      └─ …
//! RawBuffer ── Block ──── its FreeCache and the number of its shard
//!
//! process: the registry of all caches, the decay thread, fork
//! ```

mod amount;
mod bins;
mod block;
mod free_cache;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
mod process;
mod settings;
mod shard;
mod size_class;
mod store;

pub(super) use amount::Amount;
pub(super) use block::{Block, Fill};
#[cfg(all(test, loom))]
pub(super) use free_cache::FreeCache;
pub(super) use memory::{ALIGN, Extras, MAPPED_FROM};
pub(super) use process::registry;
pub use settings::LimitReached;
pub(super) use settings::{OnLimit, Settings};
pub(super) use size_class::Fit;
pub(super) use store::{Store, too_large};
