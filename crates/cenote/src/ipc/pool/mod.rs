//! Memory that one process owns and others read.
//!
//! ```text
//!   owner process                                  attacher process
//!   owner.rs   allocator, retired slots (private)  attachment.rs
//!   serve.rs   socket in a directory (place.rs) ←→ hello, welcome (wire.rs)
//!              header: serials    ── read-only ──→
//!              segments           ── read-only ──→
//!              rows               ←── writes ────  its own row, nobody else's
//! ```
//!
//! Two independent halves meet in the pool. The *allocator* is the owner's private bookkeeping:
//! which bytes of which segment belong to which slot. The *lease protocol* decides when a slot that
//! was shown to others may go back to it: [`lease`] is what a reader does, [`retire`] what the owner
//! does, [`rows`] what the owner looks at, and [`serial`] the word in which they meet.
//!
//! The pool speaks bytes: what is in a slot is the business of the layer above.

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
