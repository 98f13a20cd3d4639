//! The process at the other end of a Unix socket (unix(7): SO_PEERCRED, SO_PEERPIDFD).
//!
//! # Contract
//! `getsockopt` writes at most as many bytes as its length argument says, and returns how many it wrote.
#![allow(
    unsafe_code,
    reason = "rustix cannot express a peer whose pid is 0 (another pid namespace)"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use libc::{c_int, c_void, socklen_t, ucred};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

/// Since Linux 6.5; not in every libc yet.
const SO_PEERPIDFD: c_int = 77;

/// Since Linux 4.13; not in every libc.
const SO_PEERGROUPS: c_int = 59;

/// The process at the other end of a connection, as the kernel reports it.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// 0 if it is in a pid namespace that this process cannot see.
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Its supplementary groups; empty if it has the user of this process, whose groups are not needed.
    pub(crate) groups: Vec<u32>,
    /// Readable once the process has ended; `None` if the kernel gives no such descriptor.
    pub(crate) pidfd: Option<Arc<OwnedFd>>,
    /// The process had ended before this was made.
    ended: bool,
}

impl Peer {
    /// The process that connected, or that listens.
    pub(crate) fn of(connection: BorrowedFd<'_>) -> io::Result<Peer> {
        // SAFETY: any bytes are a valid `ucred`: its fields are integers.
        let ucred { pid, uid, gid } = unsafe { option::<ucred>(connection, libc::SO_PEERCRED) }?;
        let (pidfd, ended) = match process(connection, pid) {
            Ok(pidfd) => (Some(Arc::new(pidfd)), false),
            Err(error) => (None, matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL))),
        };
        let groups = if uid == geteuid().as_raw() { Vec::new() } else { groups(connection) };
        Ok(Peer { pid, uid, gid, groups, pidfd, ended })
    }

    /// The same process with another pidfd: an epoll instance can watch each descriptor only once.
    pub(crate) fn try_clone(&self) -> io::Result<Peer> {
        let pidfd = self.pidfd.as_ref().map(|pidfd| pidfd.try_clone()).transpose()?;
        Ok(Peer { pidfd: pidfd.map(Arc::new), ..self.clone() })
    }

    /// Whether the process is known to have ended. Its sockets may still be open in a child of it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended || self.pidfd.as_ref().is_some_and(|pidfd| is_readable(pidfd))
    }

    /// The name of the program; `unknown` if it cannot be read.
    pub(crate) fn program(&self) -> String {
        program(self.pid)
    }
}

/// The name of the program of a process; `unknown` if it cannot be read. This reads a file: do not call it under a lock
/// that sending needs.
pub(crate) fn program(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(
        |_| "unknown".to_owned(),
        |name| name.trim_end().replace(char::is_control, "?"),
    )
}

/// How much of what this process sent the peer has not read yet, in bytes of kernel memory.
pub(crate) fn unread(connection: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: this ioctl writes one `c_int` (unix(7) calls it SIOCOUTQ, which has the same value).
    let result = unsafe { libc::ioctl(connection.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    usize::try_from(bytes).map_err(io::Error::other)
}

/// The supplementary groups of the peer (SO_PEERGROUPS); empty if there are more than 256.
fn groups(connection: BorrowedFd<'_>) -> Vec<u32> {
    let mut groups = vec![0_u32; 256];
    let mut bytes = socklen_t::try_from(size_of_val(groups.as_slice())).unwrap_or(0);
    let to = groups.as_mut_ptr().cast::<c_void>();
    // SAFETY: `to` has room for `bytes` bytes, and both pointers are to live memory.
    let result = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERGROUPS,
            to,
            &raw mut bytes,
        )
    };
    groups.truncate(if result == 0 { bytes as usize / size_of::<u32>() } else { 0 });
    groups
}

fn is_readable(pidfd: &OwnedFd) -> bool {
    crate::sys::socket::seqpacket::wait_readable(pidfd, Duration::ZERO).unwrap_or(false)
}

/// A pidfd of the peer. The kernel may have given the pid to another process since, so the pid is used only if the
/// kernel lacks SO_PEERPIDFD.
fn process(connection: BorrowedFd<'_>, pid: i32) -> io::Result<OwnedFd> {
    match peer_pidfd(connection) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            let pid = Pid::from_raw(pid).ok_or(rustix::io::Errno::NODATA)?;
            Ok(pidfd_open(pid, PidfdFlags::empty())?)
        }
        found => found,
    }
}

fn peer_pidfd(connection: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: any bytes are a valid `c_int`.
    let fd = unsafe { option::<c_int>(connection, SO_PEERPIDFD) }?;
    // SAFETY: the kernel made a new descriptor (close-on-exec), and only this code has its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// Any bytes are a valid `T`.
unsafe fn option<T: Copy>(socket: BorrowedFd<'_>, name: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let size = socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let mut written = size;
    let to = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: `to` has room for `written` bytes, and both pointers are to live variables.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, to, &raw mut written)
    };
    match result {
        0 if written == size => {
            // SAFETY: all bytes are initialised, and the caller promised that any bytes are valid.
            Ok(unsafe { value.assume_init() })
        }
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
