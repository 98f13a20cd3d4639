//! A conversation that has begun: hello was said, and the answer is still to come.
//!
//! Whoever began it may wait for the answer, for a moment ([`await_some`]); a peer that is slow, or stopped, is
//! left to the service thread.

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

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) peer: Peer,
    pub(crate) connection: Arc<GuardedSocket>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

type Then = Box<dyn FnOnce(Result<Answer>) + Send>;

/// What came of trying.
pub(crate) enum Connecting {
    /// The answer will come, for as long as this is kept, and is heard by whoever listens.
    Started(Arc<Handshake>),
    /// Nobody is there any more.
    Closed,
    /// Too many wait at the door. Try again.
    Busy,
}

/// Keeps the conversation going until dropped.
pub(crate) struct Handshake {
    connection: Arc<GuardedSocket>,
    /// The most bytes of an answer.
    room: usize,
    state: Mutex<HandshakeState>,
}

#[derive(Default)]
struct HandshakeState {
    /// Taken when the answer is here.
    open: Option<(Peer, Then)>,
    watch: Option<Watch>,
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl Connecting {
    /// Has the service thread listen.
    pub(crate) fn watched_by_service(self) -> Result<Connecting> {
        if let Connecting::Started(greeting) = &self {
            greeting.watch_by_service()?;
        }
        Ok(self)
    }
}

/// Says `hello` to whoever serves `entry`. `then` is run by whoever listens.
pub(crate) fn begin(
    socket_dir: &SocketDir,
    endpoint: &Endpoint,
    hello: &[u8],
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
        return Ok(Connecting::Closed); // somebody forked off it has the socket
    }
    match packet::send(connection.as_fd(), hello, &[]) {
        // Refused already: the answer tells why.
        Err(source) if is_hang_up(&source) => {}
        sent => sent.map_err(error)?,
    }
    let open = Some((peer, Box::new(then) as Then));
    let state = Mutex::new(HandshakeState { open, watch: None });
    let connection = Arc::new(connection);
    Ok(Connecting::Started(Arc::new(Handshake { connection, room, state })))
}

/// Waits until some of those (by uid) have answered, or the time is over, or a signal came, and gives those who
/// may have.
pub(crate) fn await_some(silent: &[(u64, Arc<Handshake>)], time: Duration) -> Vec<Arc<Handshake>> {
    let Ok(time) = Timespec::try_from(time) else { return Vec::new() };
    let poll_fd = |one| PollFd::new(one, PollFlags::IN);
    let mut fds: Vec<_> = silent.iter().map(|(_, one)| poll_fd(&*one.connection)).collect();
    if poll(&mut fds, Some(&time)).is_err() {
        return Vec::new();
    }
    let answered = silent.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
    answered.map(|((_, one), _)| one.clone()).collect()
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl Handshake {
    /// Has the service thread hear the answer, unless somebody has.
    pub(crate) fn watch_by_service(self: &Arc<Self>) -> Result<()> {
        let served: Weak<dyn Served> = Arc::downgrade(&(self.clone() as Arc<dyn Served>));
        // Under the lock: whoever takes the answer finds the watch, and ends it before the connection is
        // watched by somebody else.
        let mut state = self.state();
        if state.open.is_some() && state.watch.is_none() {
            let watch = service_thread::watch(&self.connection, served, 0);
            state.watch = Some(watch.map_err(|source| Error::os("watching a socket", source))?);
        }
        Ok(())
    }

    /// Whether nobody has heard the answer, and the service thread was not told to.
    pub(crate) fn is_unwatched(&self) -> bool {
        let state = self.state();
        state.open.is_some() && state.watch.is_none()
    }

    fn state(&self) -> MutexGuard<'_, HandshakeState> {
        // Nothing under this lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the answer, if there is one.
    pub(crate) fn receive(&self) {
        let mut bytes = vec![0; self.room];
        let heard = match packet::recv(self.connection.as_fd(), &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // Told once; what was sent before it can still be read.
            Err(error) if is_hang_up(&error) => return,
            Ok((0, _)) => Err(Error::Disconnected { mid_message: false }),
            Err(source) => Err(Error::os("reading an answer", source)),
            Ok((len, fds)) => {
                bytes.truncate(len);
                Ok((bytes, fds))
            }
        };
        let HandshakeState { open, watch } = mem::take(&mut *self.state());
        // Before anybody else watches the connection.
        drop(watch);
        let Some((peer, then)) = open else { return };
        let connection = self.connection.clone();
        then(heard.map(|(bytes, fds)| Answer { peer, connection, bytes, fds }));
    }
}

impl Served for Handshake {
    fn ready(self: Arc<Self>, _token: u64) {
        self.receive();
    }
}
