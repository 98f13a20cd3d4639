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

pub(crate) mod access;
pub(crate) mod account;
mod adopted;
mod alloc;
pub(crate) mod allocator;
pub(crate) mod attach;
mod attachers;
pub(crate) mod attachment;
mod borrow;
pub(crate) mod changes;
pub(crate) mod config;
pub(crate) mod directory;
pub(crate) mod files;
pub(crate) mod garbage;
pub(crate) mod greeting;
mod growth;
mod holdings;
pub(crate) mod host;
pub(crate) mod inquiry;
pub(crate) mod lease;
mod lend;
pub(crate) mod owner;
pub(crate) mod place;
mod ready;
pub(crate) mod retire;
pub(crate) mod rows;
mod segment;
pub(crate) mod serial;
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod spared;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod wire;

#[cfg(all(test, loom))]
mod loom_tests;
