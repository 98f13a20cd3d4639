//! Topics: messages from any number of publishers to any number of subscribers, in any number of
//! processes, without copying tensors.
//!
//! ```text
//!   publisher                                     subscriber
//!   publisher.rs  ring, pool, held tensors   ←──  arrivals.rs    finds and greets publishers
//!   ring.rs       entries           ── read-only ──→  source.rs  one publisher's ring, a cursor
//!   row.rs        rows              ←── writes ──                its own row: armed, taken
//!   stage.rs      what must be copied             subscriber.rs  takes turns, sleeps, leases
//! ```
//!
//! A topic is a directory; each publisher is a socket in it, which is also that of its pool. After the
//! handshake (`wire.rs`) nothing goes over the connection but single bytes that wake whoever sleeps.

pub(crate) mod config;
pub(crate) mod handshake;
pub(crate) mod inspect;
pub(crate) mod message;
pub(crate) mod name;
pub(crate) mod notify;
pub(crate) mod plain;
pub(crate) mod publisher;
pub(crate) mod report;
pub(crate) mod signature;
pub(crate) mod stats;
pub(crate) mod subscriber;
pub(crate) mod topic;
