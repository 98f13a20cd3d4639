//! Packets with file descriptors over SOCK_SEQPACKET sockets (unix(7), SCM_RIGHTS). These calls never wait.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// The most descriptors that the kernel takes in one packet (SCM_MAX_FD).
pub(crate) const MAX_FDS: usize = 253;

const CONTROL_LEN: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

/// Sends one packet, or nothing: returns `WouldBlock` if the socket has no room.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).map(drop)?)
}

/// Receives one packet. Returns its length and descriptors, or length 0 if the peer has closed the connection. Fails with
///
/// - `WouldBlock` if there is no packet,
/// - `InvalidData` if the packet is longer than `bytes`,
/// - EMFILE if this process has no room for all its descriptors. Those that arrived are closed.
pub(crate) fn recv(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let packet = net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if packet.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // The buffer has room for as many descriptors as can be sent, so the process is out of descriptors. (A security
    // module that forbids them looks the same, but is unlikely.)
    if packet.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE.into());
    }
    Ok((packet.bytes, fds))
}
