//! Messages with file descriptors over Unix sockets (unix(7), SCM_RIGHTS).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::intervals::MESSAGE_REST_TIMEOUT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// The most file descriptors of one message: one for each plane of an image.
pub(crate) const MAX_FDS: usize = 4;

/// Room for more descriptors than a message may have. So a peer that sends too many is noticed, and its descriptors
/// are closed and not lost in truncation.
const CONTROL_LEN: usize = rustix::cmsg_space!(ScmRights(2 * MAX_FDS));

/// Fails unless the socket is a Unix socket. Any other kind would lose the descriptors without an error.
pub(crate) fn check_unix(socket: BorrowedFd<'_>) -> Result<()> {
    match net::sockopt::socket_domain(socket) {
        Ok(net::AddressFamily::UNIX) => Ok(()),
        Ok(_) => Err(Error::NotUnixSocket),
        Err(source) => Err(Error::os("looking at a socket", source)),
    }
}

/// Sends all of `bytes`, with `fds` attached to its first byte.
///
/// If a non-blocking socket has no room, it sends nothing and returns `WouldBlock`. Once the first bytes are sent, it
/// waits until it has sent the rest.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut sent = send_part(socket, bytes, fds)?;
    let mut deadline = None;
    while sent < bytes.len() {
        match send_part(socket, &bytes[sent..], &[]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(socket, PollFlags::OUT, &mut deadline)?;
            }
            part => sent += part?,
        }
    }
    Ok(())
}

fn send_part(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL.into());
    }
    loop {
        match net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// The part of one message that arrived.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Bytes that arrived: the whole message, or fewer if the peer closed the connection.
    pub(crate) len: usize,
    pub(crate) fds: Vec<OwnedFd>,
    /// The peer sent more descriptors than a message may have, or than this process has room for.
    pub(crate) lost_fds: bool,
    /// The peer's packet was longer or shorter than the message.
    pub(crate) wrong_len: bool,
}

/// Fills `bytes` from the socket and collects the descriptors that come with them.
///
/// From a socket that keeps packets apart it takes one packet of any length: the next one belongs to the next message.
/// Returns `WouldBlock` if a non-blocking socket has nothing to read.
pub(crate) fn recv(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Received> {
    let mut received = Received::default();
    let mut deadline = None;
    while received.len < bytes.len() {
        match recv_part(socket, bytes, &mut received) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && received.len > 0 => {
                wait(socket, PollFlags::IN, &mut deadline)?;
            }
            Ok(0) => break,
            part => received.len += part?,
        }
        // Otherwise a peer could send descriptors with every byte, without limit.
        if received.lost_fds {
            break;
        }
        if received.len < bytes.len() && !is_stream(socket)? {
            received.wrong_len = true;
            break;
        }
    }
    Ok(received)
}

fn is_stream(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(net::sockopt::socket_type(socket)? == net::SocketType::STREAM)
}

fn recv_part(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    received: &mut Received,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut rest = [IoSliceMut::new(&mut bytes[received.len..])];
    let part = loop {
        match net::recvmsg(socket, &mut rest, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            part => break part?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            received.fds.extend(fds);
        }
    }
    received.lost_fds |= received.fds.len() > MAX_FDS || part.flags.contains(ReturnFlags::CTRUNC);
    received.wrong_len |= part.flags.contains(ReturnFlags::TRUNC);
    Ok(part.bytes)
}

/// Waits until the socket is ready, at most until the deadline. The first wait sets the deadline, so a peer that sends
/// byte by byte gets no more time than one that sends nothing.
fn wait(socket: BorrowedFd<'_>, what: PollFlags, deadline: &mut Option<Instant>) -> io::Result<()> {
    let deadline = *deadline.get_or_insert_with(|| Instant::now() + MESSAGE_REST_TIMEOUT);
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(io::Error::other)?;
    match poll(&mut [PollFd::from_borrowed_fd(socket, what)], Some(&left)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Err(Errno::INTR) => Ok(()),
        ready => Ok(ready.map(drop)?),
    }
}
