//! Unix sockets that keep message boundaries (SOCK_SEQPACKET), bound in a directory that is open.
//!
//! A socket's path has at most 108 bytes, so paths go through `/proc/self/fd/`. Names to listen at
//! must be short all the same.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 128;

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn address(dir: BorrowedFd<'_>, name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))?)
}

/// Listens at `name` in `dir`. The name must be free.
pub(crate) fn listen(dir: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let listener = socket()?;
    net::bind(&listener, &address(dir, name)?)?;
    net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Connects to the socket at `name` in `dir`, without waiting: a listener with too many waiting
/// connections gives `WouldBlock`.
pub(crate) fn connect(dir: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    // The name may be longer than an address: this way the address is only a number.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let connection = socket()?;
    net::connect(&connection, &address)?;
    Ok(connection)
}

/// The next connection that is waiting, if any.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    match net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        connection => Ok(Some(connection?)),
    }
}

/// Waits until something can be read, or the other end is gone; `false` if time ran out.
pub(crate) fn wait_readable(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    let fd = fd.as_fd();
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)) {
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}
