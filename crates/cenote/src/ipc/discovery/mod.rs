//! How processes find each other: directories of sockets, who may use them, and the handshake over one.

pub(crate) mod access;
pub(crate) mod cleanup;
pub(crate) mod handshake;
pub(crate) mod layout;
pub(crate) mod query;
pub(crate) mod socket_dir;
pub(crate) mod watch;
