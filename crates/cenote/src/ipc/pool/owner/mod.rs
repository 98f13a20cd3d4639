//! A pool in the process that owns it: allocation, growth, and the service of its readers.

pub(crate) mod adopt;
pub(crate) mod adopted;
pub(crate) mod allocate;
pub(crate) mod free_cache;
pub(crate) mod growth;
pub(crate) mod growth_backoff;
pub(crate) mod owner;
pub(crate) mod segment;
pub(crate) mod server;
pub(crate) mod state;
pub(crate) mod tlsf;
