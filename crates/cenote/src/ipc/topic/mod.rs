//! Topics: messages from any number of publishers to any number of subscribers, in any number of processes, without copying
//! tensors.
//!
//! ```text
//!   topic.rs                     Topic: the public object; it starts either side when it is first used
//!   message.rs  plain.rs  signature.rs             what a topic carries, and how two processes compare types
//!   handshake.rs  report.rs                        packets between the two sides
//!   publisher/    publisher, stage, state          sends: pool, ring, subscribers
//!   subscriber/   subscriber, receive_state        receives: publishers take turns
//!                 discovery, publisher_link        finds and connects publishers
//!                 resolve                          finds the pool of a message, leases its slot
//!   notify.rs                                      ends the sleep of a thread of this process
//!   inspect/                                       lists and observes topics without taking part
//! ```
//!
//! A topic is a directory. Each publisher has a socket in it, which is also the socket of its pool. After the handshake, messages go through
//! the ring (`ipc/ring`); the connection carries only packets that wake the other side.

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
