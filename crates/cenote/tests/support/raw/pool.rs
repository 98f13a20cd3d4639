//! The protocol between owners and readers, as bytes on a SOCK_SEQPACKET socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::support::{TIMEOUT, pools_dir, unique};

pub(crate) const MAGIC: [u8; 8] = *b"cenote\x02\x03";
pub(crate) const ATTACH: u32 = 1;
pub(crate) const ATTACHED: u32 = 2;
pub(crate) const REFUSED: u32 = 3;
pub(crate) const SEGMENT: u32 = 4;
pub(crate) const SEGMENT_REMOVED: u32 = 5;
pub(crate) const SEGMENT_REQUEST: u32 = 6;
pub(crate) const WAKE: u32 = 7;
pub(crate) const SUBSCRIBE: u32 = 8;
pub(crate) const SUBSCRIBED: u32 = 9;
pub(crate) const MISMATCH: u32 = 10;
pub(crate) const INTRODUCED: u32 = 13;

/// How many segments an attach reply has room for.
pub(crate) const MAX_SEGMENTS: usize = 192;
/// Words before the leases of a lease row, and before the serials of a header.
pub(crate) const LEASES: usize = 8;

const MAX_FDS: usize = 253;
const CONTROL: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

pub(crate) fn packet(kind: u32, index: u32, len: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(index.to_ne_bytes());
    bytes.extend(len.to_ne_bytes());
    bytes
}

pub(crate) fn attach_request() -> Vec<u8> {
    packet(ATTACH, 0, 0)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub(crate) fn kind(bytes: &[u8]) -> u32 {
    u32_at(bytes, 8)
}

pub(crate) fn index(bytes: &[u8]) -> u32 {
    u32_at(bytes, 12)
}

/// The reply of an owner that accepts a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttachReply {
    pub(crate) uid: u64,
    pub(crate) max_slots: u32,
    pub(crate) max_leases: u32,
    /// The count that the packet claims. It may differ from `segments.len()`.
    pub(crate) count: u32,
    pub(crate) segments: Vec<(u32, u64)>,
}

impl AttachReply {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = packet(ATTACHED, 0, 0);
        bytes.extend(self.uid.to_ne_bytes());
        for word in [self.max_slots, self.max_leases, self.count, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        for &(index, len) in &self.segments {
            bytes.extend(index.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend(len.to_ne_bytes());
        }
        bytes.resize(48 + MAX_SEGMENTS * 16, 0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> AttachReply {
        let count = u32_at(bytes, 40);
        let segment = |i: usize| (u32_at(bytes, 48 + 16 * i), u64_at(bytes, 48 + 16 * i + 8));
        AttachReply {
            uid: u64_at(bytes, 24),
            max_slots: u32_at(bytes, 32),
            max_leases: u32_at(bytes, 36),
            count,
            segments: (0..count as usize).map(segment).collect(),
        }
    }
}

fn socket(flags: SocketFlags) -> OwnedFd {
    let flags = flags | SocketFlags::CLOEXEC;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

/// The path of the socket of a pool, whose file name is `NAME@UID`.
pub(crate) fn path_of(name: &str) -> io::Result<SocketAddrUnix> {
    path_in(&pools_dir(), name)
}

pub(crate) fn path_in(dir: &Path, name: &str) -> io::Result<SocketAddrUnix> {
    let wanted = format!("{name}@");
    let entries = std::fs::read_dir(dir)?.filter_map(Result::ok);
    let found = entries.map(|entry| entry.path()).find(|path| {
        path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&wanted))
    });
    Ok(SocketAddrUnix::new(found.ok_or(io::ErrorKind::NotFound)?)?)
}

/// One end of a connection that can send any bytes.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) OwnedFd);

impl Raw {
    /// Connects to the owner of a pool, and sends nothing.
    pub(crate) fn connect(name: &str) -> Raw {
        Raw::try_connect(&path_of(name).unwrap()).unwrap()
    }

    pub(crate) fn try_connect(path: &SocketAddrUnix) -> io::Result<Raw> {
        let socket = socket(SocketFlags::empty());
        net::connect(&socket, path)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        set_socket_timeout(&socket, Timeout::Send, Some(TIMEOUT))?;
        Ok(Raw(socket))
    }

    /// Sends one packet. Fails if the other end is disconnected.
    pub(crate) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); CONTROL];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
        let flags = SendFlags::NOSIGNAL;
        Ok(net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags).map(drop)?)
    }

    /// The next packet. It is empty if the other end disconnected.
    pub(crate) fn recv(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = vec![0; 4096];
        let mut space = [MaybeUninit::uninit(); CONTROL];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let packet =
            net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
        bytes.truncate(packet.bytes);
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        Ok((bytes, fds))
    }

    /// From now on `recv` waits no longer than 100 ms.
    pub(crate) fn set_short_timeout(&self) {
        let moment = Some(Duration::from_millis(100));
        set_socket_timeout(&self.0, Timeout::Recv, moment).unwrap();
    }

    /// Waits until the other end disconnects. Returns `false` if it does not in time.
    pub(crate) fn is_disconnected(&self) -> bool {
        loop {
            match self.recv() {
                Ok((bytes, _)) if !bytes.is_empty() => {}
                Ok(_) => return true,
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }
}

/// The two ends of a connection.
pub(crate) fn pair() -> (Raw, OwnedFd) {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (ours, theirs) = net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
    (Raw(ours), theirs)
}

/// A reader that an owner has accepted, and that does not use cenote.
#[derive(Debug)]
pub(crate) struct RawReader {
    pub(crate) raw: Raw,
    pub(crate) reply: AttachReply,
    pub(crate) header: OwnedFd,
    pub(crate) row: OwnedFd,
    pub(crate) segments: Vec<OwnedFd>,
}

impl RawReader {
    pub(crate) fn to(name: &str) -> RawReader {
        let raw = Raw::connect(name);
        raw.send(&attach_request(), &[]).unwrap();
        RawReader::accepted(raw).unwrap()
    }

    pub(crate) fn accepted(raw: Raw) -> Option<RawReader> {
        let (bytes, mut fds) = raw.recv().ok()?;
        if bytes.is_empty() || kind(&bytes) != ATTACHED {
            return None;
        }
        let reply = AttachReply::decode(&bytes);
        let segments = fds.split_off(2);
        let row = fds.pop()?;
        Some(RawReader { raw, reply, header: fds.pop()?, row, segments })
    }

    /// Writes the words of its lease row, from the first lease on.
    pub(crate) fn write_row(&self, mut word: impl FnMut(usize) -> u64) {
        for slot in 0..self.reply.max_slots as usize {
            let at = (LEASES + slot) as u64 * 8;
            rustix::io::pwrite(&self.row, &word(slot).to_ne_bytes(), at).unwrap();
        }
    }
}

/// A socket in place of that of an owner or publisher. The test answers with any bytes.
#[derive(Debug)]
pub(crate) struct FakeEndpoint {
    listener: OwnedFd,
    path: std::path::PathBuf,
    pub(crate) name: String,
    pub(crate) uid: u64,
}

impl FakeEndpoint {
    pub(crate) fn new(uid: u64) -> FakeEndpoint {
        let name = unique();
        std::fs::create_dir_all(pools_dir()).unwrap();
        let path = pools_dir().join(format!("{name}@{uid:016x}"));
        let mut endpoint = FakeEndpoint::at(path);
        (endpoint.name, endpoint.uid) = (name, uid);
        endpoint
    }

    /// Listens at a path.
    pub(crate) fn at(path: std::path::PathBuf) -> FakeEndpoint {
        let listener = socket(SocketFlags::empty());
        net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        net::listen(&listener, 16).unwrap();
        FakeEndpoint { listener, path, name: String::new(), uid: 0 }
    }

    /// Accepts the next connection, and receives its first packet.
    pub(crate) fn accept_request(&self) -> Raw {
        let raw = self.accept();
        let _ = raw.recv();
        raw
    }

    /// Whether a process connects within this time.
    pub(crate) fn has_connection_within(&self, time: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let time = Timespec::try_from(time).unwrap();
        poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&time)).is_ok_and(|n| n > 0)
    }

    /// Connects until the backlog is full. Returns the connections.
    pub(crate) fn fill_backlog(&self) -> Vec<OwnedFd> {
        let path = SocketAddrUnix::new(&self.path).unwrap();
        let connected = || {
            let socket = socket(SocketFlags::NONBLOCK);
            net::connect(&socket, &path).is_ok().then_some(socket)
        };
        std::iter::from_fn(connected).collect()
    }

    pub(crate) fn accept(&self) -> Raw {
        let connection = net::accept_with(&self.listener, SocketFlags::CLOEXEC).unwrap();
        set_socket_timeout(&connection, Timeout::Recv, Some(TIMEOUT)).unwrap();
        Raw(connection)
    }
}

impl Drop for FakeEndpoint {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

pub(crate) fn borrowed(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}
