//! The publisher that shares the socket of its pool: the owner passes on connections that are not about the pool.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::sys::fork::GuardedSocket;

/// The connection of a process that wants to subscribe.
#[derive(Debug)]
pub(crate) struct SubscriberConnection {
    /// The number of the connection. Numbers are not reused.
    pub(crate) number: u64,
    pub(crate) pid: i32,
    pub(crate) socket: Arc<GuardedSocket>,
}

/// The reply to a process that asks what the socket serves.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) bytes: Vec<u8>,
    /// Memory that the process may read.
    pub(crate) fd: Option<Arc<OwnedFd>>,
}

/// Called by the thread that accepts connections, most often the service thread. Must not wait.
pub(crate) trait ConnectionHandler: Send + Sync {
    /// A process wants to subscribe. An error ends the connection.
    fn subscribe(&self, connection: &SubscriberConnection, request: &[u8]) -> Result<(), ()>;

    /// What the socket serves.
    fn describe(&self) -> Description;

    /// A subscriber or reader has released a slot or a message.
    fn lease_released(&self);

    /// The connection of a subscriber has ended.
    fn disconnected(&self, number: u64);
}
