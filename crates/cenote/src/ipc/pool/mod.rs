//! Memory that one process owns and others read.
//!
//! ```text
//!   owner process (owner/)                         reader process (reader/)
//!   allocator, retired slots   private             Attachment
//!   server                     ←── connect ──────  connect
//!   header: serials            ─── read-only ───→
//!   segments                   ─── read-only ───→
//!   rows                       ←── writes ───────  its own row only
//! ```
//!
//! A pool has two independent halves. The *allocator* (`owner/tlsf`) decides which bytes of which segment belong to
//! which slot. The *lease protocol* (`ipc/lease`) decides when a published slot may return to the allocator.
//!
//! Files at this level join pools with tensors:
//!
//! - `tensor_pool`, `process_pool`: the public pool, and the one that every process has
//! - `pool_tensor`, `descriptor`: tensors in slots, and the words by which other processes find them
//! - `slot_buffer`, `slot_home`: the buffer of a slot, and its way back to the pool
//! - `registry`: all pools that this process owns or is attached to
//! - `config`, `stats`, `report`: the settings of a pool, and what it reports

#[cfg(target_os = "linux")]
pub(crate) mod config;
#[cfg(target_os = "linux")]
pub(crate) mod descriptor;
#[cfg(target_os = "linux")]
pub(crate) mod owner;
#[cfg(target_os = "linux")]
pub(crate) mod pool_tensor;
pub(crate) mod pooled_domain;
pub(crate) mod process_pool;
#[cfg(target_os = "linux")]
pub(crate) mod reader;
#[cfg(target_os = "linux")]
pub(crate) mod registry;
#[cfg(target_os = "linux")]
pub(crate) mod report;
#[cfg(target_os = "linux")]
pub(crate) mod slot_buffer;
#[cfg(target_os = "linux")]
pub(crate) mod slot_home;
#[cfg(target_os = "linux")]
pub(crate) mod stats;
#[cfg(target_os = "linux")]
pub(crate) mod tensor_pool;
