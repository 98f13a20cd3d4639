//! The lease protocol, and nothing else: how a reader keeps a slot, and how its owner reuses one.
//!
//! `reader.rs` states the protocol and its invariants; `reclaim.rs` is the other half.

#[cfg(all(test, loom))]
pub(crate) mod loom_tests;
pub(crate) mod reader;
pub(crate) mod reclaim;
pub(crate) mod rows;
pub(crate) mod serial;
