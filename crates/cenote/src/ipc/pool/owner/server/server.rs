//! The listening socket of a pool, its endpoint in the socket directory, and what the service thread watches for it.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::ipc::discovery::access::PoolAccess;
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::discovery::watch;
use crate::ipc::discovery::watch::DirectoryWatch;
use crate::ipc::service_thread;
use crate::ipc::service_thread::{Served, Waker, Watch};
use crate::sys::fork::{GuardedSocket, PerProcess};

/// What the service thread watches for a pool, as tokens: the listener, the directory, the request to grow,
/// and from [`FIRST_CONNECTION`] on two for each connection.
pub(crate) const LISTENER: u64 = 0;
pub(crate) const DIRECTORY: u64 = 1;
pub(crate) const GROWTH: u64 = 2;
pub(crate) const FIRST_CONNECTION: u64 = 4;

/// The listening socket of a pool and its endpoint. Dropping it removes the endpoint.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) socket_dir: Arc<SocketDir>,
    /// The endpoint to remove at the end. `None` once another server has taken it over.
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) listener: Arc<GuardedSocket>,
    /// The number of the next connection. Numbers are not reused.
    pub(crate) next_connection: u64,
    /// Makes the service thread reserve another segment.
    pub(crate) waker: Waker,
    _watch: Watch,
    /// Without this watch the pool goes on, but a removed endpoint is not made again.
    directory: io::Result<DirectoryWatch>,
}

impl Server {
    /// Publishes the endpoint. `served` gets the events.
    ///
    /// The directory is watched only once the endpoint is there, so that publishing causes no event. The caller
    /// checks afterwards that the endpoint is still there.
    pub(crate) fn start(
        socket_dir: SocketDir,
        endpoint: &Endpoint,
        access: PoolAccess,
        served: Weak<dyn Served>,
    ) -> Result<Server> {
        let error = |source| Error::os("watching a socket", source);
        let waker = Waker::new(served.clone(), GROWTH).map_err(error)?;
        let listener = Arc::new(socket_dir.publish(endpoint, access)?);
        let directory = watch::watch(&socket_dir.held_path(), served.clone(), DIRECTORY);
        let watch = service_thread::watch(&listener, served, LISTENER)
            .inspect_err(|_| socket_dir.remove(endpoint))
            .map_err(error)?;
        let mut reserve = reserve_fd();
        *reserve = reserve.take().or_else(|| socket_dir.open_again().ok());
        Ok(Server {
            socket_dir: Arc::new(socket_dir),
            endpoint: Some(endpoint.clone()),
            listener,
            next_connection: 0,
            waker,
            _watch: watch,
            directory,
        })
    }

    pub(crate) fn socket_dir(&self) -> Arc<SocketDir> {
        self.socket_dir.clone()
    }

    /// Whether the endpoint is made again should it be removed.
    pub(crate) fn is_watched(&self) -> bool {
        self.directory.is_ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The watch ends first: removing the endpoint must not cause an event.
        self.directory = Err(io::ErrorKind::NotFound.into());
        if let Some(endpoint) = self.endpoint.as_ref().filter(|_| !self.listener.is_inherited()) {
            self.socket_dir.remove(endpoint);
        }
    }
}

/// A file descriptor in reserve. The service thread closes it when there are none left, to accept a connection and
/// refuse it. One is enough, because only that thread does so.
pub(crate) fn reserve_fd() -> MutexGuard<'static, Option<OwnedFd>> {
    static RESERVE: PerProcess<Mutex<Option<OwnedFd>>> = PerProcess::new();
    let Ok(reserve) = RESERVE.get(|| Ok::<_, Infallible>(Mutex::default()));
    reserve.lock().unwrap_or_else(PoisonError::into_inner)
}
