//! A handshake: the request is sent, and the answer has not arrived yet.
//!
//! The thread that started it may wait for the answer for a moment ([`await_some`]). The service thread receives the
//! answers of peers that are slow or stopped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use std::{fmt, mem};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{Error, Result};
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::service_thread;
use crate::ipc::service_thread::{Served, Watch};
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::packet;
use crate::sys::socket::peer::Peer;

/// The answer of a peer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) peer: Peer,
    pub(crate) connection: Arc<GuardedSocket>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

type Then = Box<dyn FnOnce(Result<Answer>) + Send>;

/// The result of connecting.
pub(crate) enum Connecting {
    /// The request is sent. The answer is received for as long as this handshake is kept.
    Started(Arc<Handshake>),
    /// No process serves the endpoint any more.
    Closed,
    /// The backlog of the endpoint is full. The caller tries again.
    Busy,
}

/// A started handshake. Dropping it ends the connection.
pub(crate) struct Handshake {
    connection: Arc<GuardedSocket>,
    /// The most bytes of an answer.
    room: usize,
    state: Mutex<HandshakeState>,
}

#[derive(Default)]
struct HandshakeState {
    /// The peer and what to do with the answer. Taken when the answer arrives.
    open: Option<(Peer, Then)>,
    watch: Option<Watch>,
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl Connecting {
    /// Makes the service thread receive the answer.
    pub(crate) fn watched_by_service(self) -> Result<Connecting> {
        if let Connecting::Started(greeting) = &self {
            greeting.watch_by_service()?;
        }
        Ok(self)
    }
}

/// Sends `request` to the process that serves `endpoint`. The thread that receives the answer calls `then`.
pub(crate) fn begin(
    socket_dir: &SocketDir,
    endpoint: &Endpoint,
    request: &[u8],
    room: usize,
    then: impl FnOnce(Result<Answer>) + Send + 'static,
) -> Result<Connecting> {
    let error = |source| Error::Connect { pool: endpoint.name.clone(), source };
    let connection = match socket_dir.connect(endpoint) {
        Ok(connection) => connection,
        Err(source) => match source.kind() {
            io::ErrorKind::WouldBlock => return Ok(Connecting::Busy),
            io::ErrorKind::NotFound => return Ok(Connecting::Closed),
            io::ErrorKind::ConnectionRefused => {
                socket_dir.remove_dead(endpoint);
                return Ok(Connecting::Closed);
            }
            _ => return Err(error(source)),
        },
    };
    let peer = Peer::of(connection.as_fd()).map_err(error)?;
    if peer.has_ended() {
        return Ok(Connecting::Closed); // a process that was forked off the owner has the socket
    }
    match packet::send(connection.as_fd(), request, &[]) {
        // The peer has refused already: its answer has the reason.
        Err(source) if is_disconnect(&source) => {}
        sent => sent.map_err(error)?,
    }
    let open = Some((peer, Box::new(then) as Then));
    let state = Mutex::new(HandshakeState { open, watch: None });
    let connection = Arc::new(connection);
    Ok(Connecting::Started(Arc::new(Handshake { connection, room, state })))
}

/// Waits until some of these handshakes (by uid) are answered, the time has passed, or a signal arrives. Returns those
/// that may be answered.
pub(crate) fn await_some(
    unanswered: &[(u64, Arc<Handshake>)],
    time: Duration,
) -> Vec<Arc<Handshake>> {
    let Ok(time) = Timespec::try_from(time) else { return Vec::new() };
    let poll_fd = |one| PollFd::new(one, PollFlags::IN);
    let mut fds: Vec<_> = unanswered.iter().map(|(_, one)| poll_fd(&*one.connection)).collect();
    if poll(&mut fds, Some(&time)).is_err() {
        return Vec::new();
    }
    let answered = unanswered.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
    answered.map(|((_, one), _)| one.clone()).collect()
}

fn is_disconnect(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl Handshake {
    /// Makes the service thread receive the answer, unless it has been received.
    pub(crate) fn watch_by_service(self: &Arc<Self>) -> Result<()> {
        let served: Weak<dyn Served> = Arc::downgrade(&(self.clone() as Arc<dyn Served>));
        // Under the lock, so that the thread which takes the answer finds the watch. It ends the watch before the
        // connection is watched for another purpose.
        let mut state = self.state();
        if state.open.is_some() && state.watch.is_none() {
            let watch = service_thread::watch(&self.connection, served, 0);
            state.watch = Some(watch.map_err(|source| Error::os("watching a socket", source))?);
        }
        Ok(())
    }

    /// Whether the answer has not been received and the service thread does not wait for it.
    pub(crate) fn is_unwatched(&self) -> bool {
        let state = self.state();
        state.open.is_some() && state.watch.is_none()
    }

    fn state(&self) -> MutexGuard<'_, HandshakeState> {
        // Nothing under this lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives the answer, if it has arrived.
    pub(crate) fn receive(&self) {
        let mut bytes = vec![0; self.room];
        let received = match packet::recv(self.connection.as_fd(), &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // The kernel reports this once. What was sent before can still be read.
            Err(error) if is_disconnect(&error) => return,
            Ok((0, _)) => Err(Error::Disconnected { mid_message: false }),
            Err(source) => Err(Error::os("reading an answer", source)),
            Ok((len, fds)) => {
                bytes.truncate(len);
                Ok((bytes, fds))
            }
        };
        let HandshakeState { open, watch } = mem::take(&mut *self.state());
        // Before the connection is watched for another purpose.
        drop(watch);
        let Some((peer, then)) = open else { return };
        let connection = self.connection.clone();
        then(received.map(|(bytes, fds)| Answer { peer, connection, bytes, fds }));
    }
}

impl Served for Handshake {
    fn ready(self: Arc<Self>, _token: u64) {
        self.receive();
    }
}
