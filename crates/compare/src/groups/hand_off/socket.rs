//! Unix sockets: frames that are copied through a socket, and frames whose file descriptor is sent over it.

use std::fs;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::endpoint::{Endpoint, Link, Peer, Side};
use super::wake::{TIMEOUT, Waker};
use crate::Result;
use crate::mapping::Mapping;
use crate::run_dir;

/// A socket, connected when both sides are open. The parent listens.
enum Socket {
    Listening(UnixListener),
    Connected(UnixStream),
}

impl Socket {
    fn open(link: Link, kind: &str) -> Result<Socket> {
        let path = run_dir::dir()?.join(format!("{}-{kind}", link.name));
        Ok(match link.side {
            Side::Parent => {
                _ = fs::remove_file(&path);
                Socket::Listening(UnixListener::bind(path)?)
            }
            Side::Helper => Socket::Connected(UnixStream::connect(path)?),
        })
    }

    fn connect(&mut self, polling: bool) -> Result<()> {
        if let Socket::Listening(listener) = self {
            *self = Socket::Connected(listener.accept()?.0);
        }
        self.stream()?.set_nonblocking(polling)?;
        Ok(())
    }

    fn stream(&mut self) -> Result<&mut UnixStream> {
        match self {
            Socket::Connected(stream) => Ok(stream),
            Socket::Listening(_) => Err("not connected".into()),
        }
    }
}

/// Frames whose bytes go through the socket.
struct Copied {
    socket: Socket,
    frame: Vec<u8>,
    answer: Vec<u8>,
}

/// Opens an endpoint for round trips with copies.
pub(crate) fn open_copied(link: Link) -> Result<Box<dyn Peer>> {
    let mut socket = Socket::open(link, "copied")?;
    if link.side == Side::Helper {
        socket.connect(true)?;
    }
    Ok(Box::new(Copied { socket, frame: vec![1; link.bytes], answer: vec![1; link.bytes] }))
}

impl Endpoint for Copied {
    fn ready(&mut self) -> Result<()> {
        self.socket.connect(true)
    }

    fn send(&mut self, value: u64) -> Result<()> {
        self.frame[..8].copy_from_slice(&value.to_le_bytes());
        let stream = self.socket.stream()?;
        let mut rest = &self.frame[..];
        while !rest.is_empty() {
            let count = polled(stream.write(rest))?.unwrap_or(0);
            rest = &rest[count..];
        }
        Ok(())
    }

    fn recv(&mut self) -> Result<Option<u64>> {
        let stream = self.socket.stream()?;
        let mut done = 0;
        while done < self.answer.len() {
            match polled(stream.read(&mut self.answer[done..]))? {
                None if done == 0 => return Ok(None),
                Some(0) => return Err("the other side closed the socket".into()),
                count => done += count.unwrap_or(0),
            }
        }
        Ok(Some(u64::from_le_bytes(self.answer[..8].try_into()?)))
    }
}

/// The result of a non-blocking call; `None` if it would block.
fn polled<T>(result: std::io::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Frames in shared memory files. The sender maps a file once, the receiver maps it for every frame.
struct SentFd {
    socket: Socket,
    frames: Vec<(OwnedFd, Mapping)>,
    next: usize,
    bytes: usize,
}

/// The number of frames in use, as a real sender would have.
const FRAMES: usize = 4;

/// Opens an endpoint for round trips of file descriptors.
pub(crate) fn open_sent(link: Link) -> Result<Box<dyn Peer>> {
    let bytes = link.bytes.max(4096);
    let mut socket = Socket::open(link, "sent")?;
    if link.side == Side::Helper {
        socket.connect(true)?;
    }
    let frames = (0..FRAMES).map(|_| frame(bytes)).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(SentFd { socket, frames, next: 0, bytes }))
}

fn frame(bytes: usize) -> Result<(OwnedFd, Mapping)> {
    let fd = memfd_create("frame", MemfdFlags::CLOEXEC)?;
    ftruncate(&fd, bytes as u64)?;
    let region = Mapping::shared(&fd, bytes, true)?;
    Ok((fd, region))
}

impl Endpoint for SentFd {
    fn ready(&mut self) -> Result<()> {
        self.socket.connect(true)
    }

    fn send(&mut self, value: u64) -> Result<()> {
        self.next = (self.next + 1) % FRAMES;
        let (fd, region) = &self.frames[self.next];
        region.set_first_word(value);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err("no space for a descriptor".into());
        }
        sendmsg(self.socket.stream()?, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
        Ok(())
    }

    fn recv(&mut self) -> Result<Option<u64>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let received = recvmsg(
            self.socket.stream()?,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        );
        if matches!(received, Err(rustix::io::Errno::AGAIN)) {
            return Ok(None);
        }
        if received?.bytes == 0 {
            return Err("the other side closed the socket".into());
        }
        let fd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let region =
            Mapping::shared(&fd.ok_or("the message has no file descriptor")?, self.bytes, false)?;
        Ok(Some(region.first_word()))
    }
}

/// One byte in each direction: the least that wakes a process.
struct Byte(Socket);

/// Opens an endpoint for wake-ups.
pub(crate) fn waker(link: Link) -> Result<Box<dyn Waker>> {
    Ok(Box::new(Byte(Socket::open(link, "byte")?)))
}

impl Waker for Byte {
    fn ready(&mut self) -> Result<()> {
        self.0.connect(false)?;
        Ok(self.0.stream()?.set_read_timeout(Some(TIMEOUT))?)
    }

    fn wake(&mut self) -> Result<()> {
        Ok(self.0.stream()?.write_all(&[1])?)
    }

    fn sleep(&mut self) -> Result<()> {
        Ok(self.0.stream()?.read_exact(&mut [0])?)
    }
}
