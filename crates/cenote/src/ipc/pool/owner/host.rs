//! Whoever shares a pool's socket: connections that are not about the pool are passed on to it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::sys::fork::GuardedSocket;

/// A connection, as a host sees it.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Which connection it is; never reused.
    pub(crate) number: u64,
    pub(crate) pid: i32,
    pub(crate) connection: Arc<GuardedSocket>,
}

/// What a host tells somebody who only asks.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) bytes: Vec<u8>,
    /// Memory that the asker may look at.
    pub(crate) fd: Option<Arc<OwnedFd>>,
}

/// Called by whoever lets others in, the service thread most often, and must not wait.
pub(crate) trait Host: Send + Sync {
    /// Somebody wants to be a guest. An error ends the connection.
    fn greet(&self, guest: &Guest, hello: &[u8]) -> Result<(), ()>;

    /// What to tell somebody who only asks.
    fn describe(&self) -> Description;

    /// Somebody, guest or attacher, let go of something.
    fn woken(&self);

    /// A guest is gone.
    fn left(&self, number: u64);
}
