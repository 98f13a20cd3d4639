//! The queue of one publisher, and everything that is written into it.
//!
//! ```text
//!   publisher process                                   subscriber process
//!   codec.rs         encode a tensor into words
//!   ring.rs          RingWriter ──── ring: read-only ────→  ring.rs          RingReader
//!                                                           cursor.rs        read position
//!                                                           layout_cache.rs  decode the words
//!   subscriber_row.rs  read     ←─── row: read-write ────   subscriber_row.rs  write
//! ```
//!
//! The publisher writes the ring; every subscriber maps it read-only. Each subscriber writes one row, which its
//! publisher reads: how far it has come, and whether it sleeps. Neither side trusts a word of the other.
//!
//! `orderings.rs` names the fences of the protocol, so that the loom models can leave one out at a time and fail.
//!
//! # Wire version
//!
//! Publisher and subscriber may be different builds, so the layout of the ring, of the row and of an entry has a version: the
//! last two bytes of [`MAGIC`](crate::ipc::shared::wire::MAGIC). Every packet of the handshake carries them, and a
//! process maps a ring only after a handshake. Change `MAGIC` with any word that these files write.

pub(crate) mod codec;
pub(crate) mod cursor;
pub(crate) mod layout_cache;
#[cfg(all(test, loom))]
pub(crate) mod loom_tests;
pub(crate) mod orderings;
pub(crate) mod ring;
pub(crate) mod subscriber_row;
