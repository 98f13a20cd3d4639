//! Requests to the processes that serve endpoints. Each request has its own connection. Many are sent at once and share
//! one deadline, so a stopped process delays the others no further.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::Result;
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir, is_shortage};
use crate::ipc::shared::wire::{Kind, Packet};
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::packet;
use crate::sys::socket::peer::Peer;

/// The most requests at once: each takes one or two file descriptors.
pub(crate) const AT_ONCE: usize = 128;

/// The most directories that are held open meanwhile.
pub(crate) const PLACES_AT_ONCE: usize = 64;

/// A request that was sent.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) peer: Peer,
    connection: GuardedSocket,
}

impl Query {
    /// Sends a request to the process that serves an endpoint, without waiting. Returns `None` if no process serves it. The
    /// inner error means that the process is there but cannot be asked: its backlog is full, or it does not admit this user.
    /// The outer error means that this process is out of a resource.
    pub(crate) fn send(
        socket_dir: &SocketDir,
        endpoint: &Endpoint,
        question: Kind,
    ) -> Result<io::Result<Option<Query>>> {
        match Query::try_send(socket_dir, endpoint, question) {
            Err(error) if is_shortage(&error) => Err(socket_dir.io_error("connecting in", error)),
            asked => Ok(asked),
        }
    }

    fn try_send(
        socket_dir: &SocketDir,
        endpoint: &Endpoint,
        question: Kind,
    ) -> io::Result<Option<Query>> {
        let connection = match socket_dir.connect(endpoint) {
            Err(error) if is_gone(&error) => return Ok(None),
            connected => connected?,
        };
        let peer = Peer::of(connection.as_fd())?;
        if peer.has_ended() {
            return Ok(None);
        }
        let question = Packet::new(question);
        // If the peer has disconnected, there will be no answer.
        let _ = packet::send(connection.as_fd(), bytemuck::bytes_of(&question), &[]);
        Ok(Some(Query { peer, connection }))
    }

    /// The answer, or `None` if none has arrived. Empty if the connection has ended without one.
    pub(crate) fn answer(&self, room: usize) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = vec![0; room];
        let (len, fds) = match packet::recv(self.connection.as_fd(), &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            received => received.unwrap_or_default(),
        };
        bytes.truncate(len);
        Some((bytes, fds))
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// Waits until all requests are answered or the time has passed.
pub(crate) fn await_replies<'a>(asked: impl Iterator<Item = &'a Query>, time: Duration) {
    let poll_fd = |query: &'a Query| PollFd::new(&query.connection, PollFlags::IN);
    let mut unanswered: Vec<PollFd<'_>> = asked.map(poll_fd).collect();
    let start = Instant::now();
    while let Some(left) = time.checked_sub(start.elapsed()).filter(|_| !unanswered.is_empty()) {
        let Ok(left) = Timespec::try_from(left) else { return };
        match poll(&mut unanswered, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => unanswered.retain(|fd| fd.revents().is_empty()),
            Err(_) => return,
        }
    }
}
