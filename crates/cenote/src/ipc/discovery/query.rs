//! Questions to whoever serves an entry, on connections of their own: many are asked at once, and have one
//! time to answer, so that those who are stopped delay nobody.

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

/// The most that are asked at once: each takes a file descriptor or two.
pub(crate) const AT_ONCE: usize = 128;

/// The most directories that are held open meanwhile.
pub(crate) const PLACES_AT_ONCE: usize = 64;

/// Somebody who was asked something.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) peer: Peer,
    connection: GuardedSocket,
}

impl Query {
    /// Asks whoever serves an entry, without waiting for anything; `None` if nobody does. It may be
    /// there and not be asked, for too many did, or it is closed to this user: that is the inner error.
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
        // Should it have hung up, there will be no answer.
        let _ = packet::send(connection.as_fd(), bytemuck::bytes_of(&question), &[]);
        Ok(Some(Query { peer, connection }))
    }

    /// What it said, if anything came: `None` if not yet. An end without an answer is empty.
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

/// Waits until all have answered, or the time is over.
pub(crate) fn await_replies<'a>(asked: impl Iterator<Item = &'a Query>, time: Duration) {
    let poll_fd = |inquiry: &'a Query| PollFd::new(&inquiry.connection, PollFlags::IN);
    let mut silent: Vec<PollFd<'_>> = asked.map(poll_fd).collect();
    let start = Instant::now();
    while let Some(left) = time.checked_sub(start.elapsed()).filter(|_| !silent.is_empty()) {
        let Ok(left) = Timespec::try_from(left) else { return };
        match poll(&mut silent, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => silent.retain(|fd| fd.revents().is_empty()),
            Err(_) => return,
        }
    }
}
