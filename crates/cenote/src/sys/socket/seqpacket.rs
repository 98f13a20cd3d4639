//! Unix sockets that keep message boundaries (SOCK_SEQPACKET), in a directory that is open.
//!
//! The path of a socket has at most 108 bytes, so paths go through `/proc/self/fd/`. The name of a listening socket
//! counts, so it must still be short.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::intervals::LONGEST_POLL;
use crate::sys::fork::GuardedSocket;

/// How many connections the kernel queues until they are accepted.
const BACKLOG: i32 = 128;

fn socket() -> io::Result<GuardedSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    GuardedSocket::open(|| {
        Ok(net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
    })
}

/// Two sockets that are connected to each other. For a process that gets one of them, this process is the peer.
pub(crate) fn pair() -> io::Result<(GuardedSocket, GuardedSocket)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let make = || net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    GuardedSocket::open_pair(|| Ok(make()?))
}

fn address(dir: BorrowedFd<'_>, name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))?)
}

/// Creates a socket at `name` in `dir`. Fails if the name exists. No process can connect before [`listen`].
pub(crate) fn bind(dir: BorrowedFd<'_>, name: &str) -> io::Result<GuardedSocket> {
    let listener = socket()?;
    net::bind(&listener, &address(dir, name)?)?;
    Ok(listener)
}

/// Lets processes connect.
pub(crate) fn listen(listener: &GuardedSocket) -> io::Result<()> {
    Ok(net::listen(listener, BACKLOG)?)
}

/// Connects to the socket at `name` in `dir`. Returns `WouldBlock` if the queue of the listener is full.
pub(crate) fn connect(dir: BorrowedFd<'_>, name: &str) -> io::Result<GuardedSocket> {
    // The name may be too long for an address. A path with the number of an open file is short.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let connection = socket()?;
    net::connect(&connection, &address)?;
    Ok(connection)
}

/// Accepts the next connection; `None` if none is queued.
pub(crate) fn accept(listener: &GuardedSocket) -> io::Result<Option<GuardedSocket>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match GuardedSocket::open(|| Ok(net::accept_with(listener, flags)?)) {
        Err(error) if is_none(&error) => Ok(None),
        connection => Ok(Some(connection?)),
    }
}

/// Whether no connection is queued, or it was closed meanwhile, or a signal came.
fn is_none(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | ConnectionAborted | Interrupted)
}

/// Waits until the file is readable or the peer has closed it. Returns false if the time ran out or a signal came.
pub(crate) fn wait_readable(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    wait_any(&mut [PollFd::new(&fd, PollFlags::IN)], Some(timeout))
}

/// Waits until one of the files is ready or closed by its peer. Returns false if the time ran out or a signal came.
pub(crate) fn wait_any(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.map(|timeout| timeout.min(LONGEST_POLL));
    let timeout = timeout.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    match poll(fds, timeout.as_ref()) {
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}
