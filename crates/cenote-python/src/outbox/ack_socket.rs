//! A datagram socket that only processes of this user can send to. It leaves no file behind, however the
//! process ends.
//!
//! The socket is bound to a file that is deleted at once. Its owner keeps a descriptor of that file, and
//! senders reach the socket as `/proc/PID/fd/NUMBER`. The kernel lets a process follow that path only if it
//! may inspect the owner, which a process of another user may not; an abstract socket name would be open to
//! all users. A forked child has another pid, so the path never leads to it.
#![allow(unsafe_code, reason = "a forked child closes descriptors that its parent's thread owns")]

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::rand::{GetRandomFlags, getrandom};

/// The name of the socket's file while it exists.
const FILE_NAME: &str = "ack";

/// A bound socket.
#[derive(Debug)]
pub(crate) struct AckSocket {
    socket: UnixDatagram,
    /// The file that it is bound to, which is already deleted.
    file: OwnedFd,
}

impl AckSocket {
    /// Binds a socket in the directory for temporary files, or else in `/dev/shm`. Fails with the error of
    /// the latter.
    pub(crate) fn open() -> io::Result<AckSocket> {
        AckSocket::open_in(&std::env::temp_dir())
            .or_else(|_| AckSocket::open_in(&PathBuf::from("/dev/shm")))
    }

    /// Binds it in a new directory of this user, and deletes file and directory again.
    fn open_in(parent: &Path) -> io::Result<AckSocket> {
        let dir = parent.join(format!("cenote-{:016x}", u64::from_ne_bytes(random_bytes()?)));
        DirBuilder::new().mode(0o700).create(&dir)?;
        let bound = AckSocket::bind_in(&dir);
        // If `bind_in` failed, there may be no file.
        let _ = fs::remove_file(dir.join(FILE_NAME));
        fs::remove_dir(&dir)?;
        bound
    }

    fn bind_in(dir: &Path) -> io::Result<AckSocket> {
        let handle = openat(CWD, dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        // A socket's path has at most 107 bytes. This one is short, however long the directory's path is.
        let path = format!("/proc/self/fd/{}/{FILE_NAME}", handle.as_raw_fd());
        let socket = UnixDatagram::bind(&path)?;
        let file = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(AckSocket { socket, file })
    }

    /// The path that [`send_ack`] takes, in any process of this user.
    pub(crate) fn address(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd())
    }

    /// Receives one datagram and returns its length.
    pub(crate) fn recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.socket.recv(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Closes a forked child's copies of the parent's descriptors. The child calls it right after the fork, and
    /// never drops the socket.
    pub(crate) fn close_inherited(&self) {
        for fd in [self.socket.as_raw_fd(), self.file.as_raw_fd()] {
            // SAFETY: the child was just forked, so the number still is its copy of the parent's descriptor.
            // The thread that uses the descriptor does not exist in the child. The socket, which owns it, is
            // never dropped in the child, so it is closed once.
            unsafe { rustix::io::close(fd) };
        }
    }
}

/// Sends a datagram to an [`AckSocket`]. While the socket's queue is full it waits, for `timeout` at most.
pub(crate) fn send_ack(address: &str, bytes: &[u8], timeout: Duration) -> io::Result<()> {
    let (socket, start) = (UnixDatagram::unbound()?, Instant::now());
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        // A timeout of zero is an error.
        socket.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
        match socket.send_to(bytes, address) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !left.is_zero() => {}
            done => return done.map(drop),
        }
    }
}

/// Eight random bytes of the kernel.
pub(crate) fn random_bytes() -> io::Result<[u8; 8]> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}
