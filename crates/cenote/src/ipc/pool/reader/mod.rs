//! A pool in a process that attached to it: the connection, and the leases of this process.

pub(crate) mod attachment;
pub(crate) mod background;
pub(crate) mod connect;
pub(crate) mod introduced;
pub(crate) mod lease_table;
