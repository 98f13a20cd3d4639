//! A socket that other processes of this user can send datagrams to, and nobody else, and that leaves nothing
//! behind however the process ends.
//!
//! It is bound to a file that is gone at once. What stays is a descriptor of that file, and through
//! `/proc/PID/fd/NUMBER` the kernel lets those in who may look into the process: not other users, as they
//! could with an abstract name, and whoever was forked off has another PID.
#![allow(unsafe_code, reason = "a forked child closes what a thread of its parent's owns")]

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

/// A socket, and the way to it.
#[derive(Debug)]
pub(crate) struct Door {
    socket: UnixDatagram,
    /// The file that it is bound to, which has no name any more.
    file: OwnedFd,
}

impl Door {
    pub(crate) fn open() -> io::Result<Door> {
        let places = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
        let mut opened = Err(io::ErrorKind::NotFound.into());
        for place in places {
            opened = Door::open_in(&place);
            if opened.is_ok() {
                break;
            }
        }
        opened
    }

    /// In a directory that is there for the moment, and for this user.
    fn open_in(place: &Path) -> io::Result<Door> {
        let directory = place.join(format!("cenote-{:016x}", u64::from_ne_bytes(random()?)));
        DirBuilder::new().mode(0o700).create(&directory)?;
        let made = Door::bound_in(&directory);
        // Whatever came of it; what is not there need not go.
        let _ = fs::remove_file(directory.join("door"));
        fs::remove_dir(&directory)?;
        made
    }

    fn bound_in(directory: &Path) -> io::Result<Door> {
        let handle = openat(CWD, directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        // However long the directory's name is, this one is short enough for a socket.
        let path = format!("/proc/self/fd/{}/door", handle.as_raw_fd());
        let socket = UnixDatagram::bind(&path)?;
        let file = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Door { socket, file })
    }

    /// What [`knock`] takes, in any process of this user.
    pub(crate) fn address(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd())
    }

    pub(crate) fn recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.socket.recv(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Closes in a forked child, before it does anything else, what belongs to its parent.
    pub(crate) fn close_inherited(&self) {
        for fd in [self.socket.as_raw_fd(), self.file.as_raw_fd()] {
            // SAFETY: the child has just been forked, so this is still its copy of the descriptor. The thread
            // that uses it is not in this process, and the door, which owns it, is never dropped here.
            unsafe { rustix::io::close(fd) };
        }
    }
}

/// Sends a few bytes to a door. Waits while it is full, but no longer than `patience`.
pub(crate) fn knock(address: &str, bytes: &[u8], patience: Duration) -> io::Result<()> {
    let (socket, start) = (UnixDatagram::unbound()?, Instant::now());
    loop {
        let left = patience.saturating_sub(start.elapsed());
        // No time at all would mean any.
        socket.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
        match socket.send_to(bytes, address) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !left.is_zero() => {}
            done => return done.map(drop),
        }
    }
}

pub(crate) fn random() -> io::Result<[u8; 8]> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}
