//! Everything that involves another process.
//!
//! A room uses only the rooms above it in this list:
//!
//! - `shared`: words that two processes map, checks of received file descriptors, packets
//! - `service_thread`: one thread for the process; it serves all pools and topics
//! - `discovery`: directories of sockets, and the handshake over one of them
//! - `lease`: the protocol by which a reader keeps a slot and its owner reuses it
//! - `pool`: memory that one process owns and others read
//! - `ring`: the queue of a publisher, and the codec of its entries
//! - `topic`: publishers and subscribers

#[cfg(target_os = "linux")]
pub(crate) mod discovery;
#[cfg(target_os = "linux")]
pub(crate) mod lease;
pub(crate) mod pool;
#[cfg(target_os = "linux")]
pub(crate) mod ring;
#[cfg(target_os = "linux")]
pub(crate) mod service_thread;
#[cfg(target_os = "linux")]
pub(crate) mod shared;
#[cfg(target_os = "linux")]
pub(crate) mod topic;
