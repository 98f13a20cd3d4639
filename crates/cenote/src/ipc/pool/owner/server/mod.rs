//! The owner's end of a pool's socket: making the pool known, and serving the processes that connect.

pub(crate) mod accept;
pub(crate) mod connection;
pub(crate) mod connection_handler;
pub(crate) mod connections;
pub(crate) mod create;
pub(crate) mod introduce;
pub(crate) mod introduced_pools;
pub(crate) mod refusal;
pub(crate) mod server;
