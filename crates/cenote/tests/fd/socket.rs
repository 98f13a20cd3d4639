//! Pairs of sockets, and messages as they are on the wire.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use cenote::{Error, Tensor};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

pub(super) fn packets() -> (OwnedFd, OwnedFd) {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    with_timeouts(rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap())
}

pub(super) fn streams() -> (OwnedFd, OwnedFd) {
    let (a, b) = UnixStream::pair().unwrap();
    with_timeouts((a.into(), b.into()))
}

/// Sockets whose calls fail after a minute, so that a test fails instead of hanging.
fn with_timeouts((a, b): (OwnedFd, OwnedFd)) -> (OwnedFd, OwnedFd) {
    for socket in [&a, &b] {
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(socket, which, Some(Duration::from_secs(60))).unwrap();
        }
    }
    (a, b)
}

pub(super) fn send_and_receive(tensor: &Tensor) -> Tensor {
    let (here, there) = streams();
    tensor.send(&here).unwrap();
    Tensor::recv(&there).unwrap()
}

/// Sends these bytes and descriptors in one message.
pub(super) fn send_raw(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
    let flags = SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).unwrap();
    assert_eq!(sent, bytes.len());
}

/// The bytes and descriptors of the message that sends a tensor.
pub(super) fn message_of(tensor: &Tensor) -> (Vec<u8>, Vec<OwnedFd>) {
    let (here, there) = packets();
    tensor.send(&here).unwrap();
    let mut bytes = vec![0; 64 << 10];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let len = rustix::net::recvmsg(&there, &mut parts, &mut control, flags).unwrap().bytes;
    bytes.truncate(len);
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    (bytes, fds)
}

/// What `Tensor::recv` returns if the peer sends these bytes and descriptors and closes the socket.
pub(super) fn recv_raw(
    pair: fn() -> (OwnedFd, OwnedFd),
    bytes: &[u8],
    fds: &[OwnedFd],
) -> cenote::Result<Tensor> {
    let (here, there) = pair();
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    send_raw(&here, bytes, &fds);
    drop(here);
    Tensor::recv(&there)
}

pub(super) fn os_error(result: cenote::Result<Tensor>) -> ErrorKind {
    match result {
        Err(Error::Os { source, .. }) => source.kind(),
        other => panic!("{other:?}"),
    }
}
