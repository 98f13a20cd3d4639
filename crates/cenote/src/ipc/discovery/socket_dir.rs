//! A directory of sockets, `$CENOTE_DIR/<namespace>/<kind>/`, in which processes find each other.
//!
//! An *endpoint* is one socket, named `<name>@<uid>`. It appears by a rename, already listening, so a process that sees
//! it can connect. It outlives an owner that was killed. Then the kernel refuses connections, and the next process that
//! looks for the name, or `remove_dead`, removes it. An owner that was killed before the rename leaves a hidden socket,
//! which the next owner in the directory removes.
//!
//! Taking over a name and removing sockets need the lock (flock) of the directory. Finding and connecting do not.

use std::io;
use std::iter;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::intervals::{DIR_ATTEMPTS, DIR_LOCK_POLL, DIR_LOCK_TIMEOUT};
use crate::ipc::discovery::access::PoolAccess;
use crate::ipc::discovery::layout::{DirLayout, check_name};
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::peer::Peer;
use crate::sys::socket::seqpacket;

/// A directory of sockets, held open.
#[derive(Debug)]
pub(crate) struct SocketDir {
    dir: OwnedFd,
    layout: DirLayout,
}

/// The name and uid of a pool or publisher, which its socket has as its file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) name: String,
    pub(crate) uid: u64,
}

impl Endpoint {
    fn file_name(&self) -> String {
        format!("{}@{:016x}", self.name, self.uid)
    }

    fn parse(file_name: &str) -> Option<Endpoint> {
        let (name, uid) = file_name.rsplit_once('@')?;
        // Other users may make files here, and people read their names.
        check_name(name).ok()?;
        let endpoint = Endpoint { name: name.to_owned(), uid: u64::from_str_radix(uid, 16).ok()? };
        (endpoint.file_name() == file_name).then_some(endpoint)
    }
}

/// The file name of a socket that does not listen yet.
fn hidden_name(uid: u64) -> String {
    format!(".{uid:016x}")
}

fn is_hidden(name: &str) -> bool {
    let uid = name.strip_prefix('.').and_then(|uid| u64::from_str_radix(uid, 16).ok());
    uid.is_some_and(|uid| hidden_name(uid) == name)
}

/// The lock of a directory, until dropped.
#[derive(Debug)]
pub(crate) struct DirLock(OwnedFd);

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing unlocks as well; a fork in between would delay that.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl SocketDir {
    /// Opens the directory for one kind of endpoint, and makes it if it is missing.
    pub(crate) fn open(kind: &str, access: PoolAccess) -> Result<SocketDir> {
        SocketDir::make(DirLayout::of(kind)?, access)
    }

    /// Opens the directory for one kind of endpoint, if it exists.
    pub(crate) fn find(kind: &str) -> Result<Option<SocketDir>> {
        let layout = DirLayout::of(kind)?;
        Ok(layout.find()?.map(|dir| SocketDir { dir, layout }))
    }

    /// The names of all topics that have a directory.
    pub(crate) fn topics() -> Result<Vec<String>> {
        SocketDir::find("topics")?.map_or(Ok(Vec::new()), |topics| topics.directories())
    }

    /// The kinds of all directories that may exist. The caller opens a few at a time: there may be more of them than file
    /// descriptors. If this user may not list the topics, returns the pools alone.
    pub(crate) fn all_kinds() -> Result<Vec<String>> {
        let topics = match SocketDir::topics() {
            Err(error) if is_denied(&error) && SocketDir::find("pools").is_ok() => Vec::new(),
            topics => topics?,
        };
        let topics = topics.into_iter().map(|name| format!("topics/{name}"));
        Ok(iter::once("pools".to_owned()).chain(topics).collect())
    }

    /// Opens one directory of many, if it exists. Skips one that this user may not open. Fails if this process is out of
    /// file descriptors or memory.
    pub(crate) fn find_one_of(kind: &str) -> Result<Option<SocketDir>> {
        match SocketDir::find(kind) {
            Err(Error::Directory { op, path, source }) if is_shortage(&source) => {
                Err(Error::Directory { op, path, source })
            }
            found => Ok(found.ok().flatten()),
        }
    }

    /// Whether its endpoints are the publishers of a topic.
    pub(crate) fn is_of_topic(&self) -> bool {
        self.layout.kind() == "topics"
    }

    /// Opens or makes the directory again, as it may have been removed. Its path stays the one from when it was first opened.
    pub(crate) fn reopen(&self, access: PoolAccess) -> Result<SocketDir> {
        SocketDir::make(self.layout.clone(), access)
    }

    fn make(layout: DirLayout, access: PoolAccess) -> Result<SocketDir> {
        Ok(SocketDir { dir: layout.make(access)?, layout })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.layout.path()
    }

    /// A path to this open directory, even if it was moved or removed.
    pub(crate) fn held_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.dir.as_raw_fd()).into()
    }

    /// Waits for the lock of the directory, which other processes hold for microseconds. Gives up after a while, because
    /// every process that can read the directory can take the lock.
    pub(crate) fn lock(&self) -> Result<DirLock> {
        let file = self.open_again().map_err(|source| self.error("opening", source))?;
        let start = Instant::now();
        while let Err(source) = fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            let busy = matches!(source, Errno::WOULDBLOCK | Errno::INTR);
            if !busy || start.elapsed() > DIR_LOCK_TIMEOUT {
                return Err(self.error("locking", source));
            }
            std::thread::sleep(DIR_LOCK_POLL);
        }
        Ok(DirLock(file))
    }

    /// The directory and its lock. If another process has removed the directory meanwhile, makes it again; a process that
    /// removes a directory holds its lock.
    pub(crate) fn locked(self, access: PoolAccess) -> Result<(SocketDir, DirLock)> {
        let mut socket_dir = self;
        for _ in 1..DIR_ATTEMPTS {
            let locked = socket_dir.lock();
            if !socket_dir.is_removed() {
                return Ok((socket_dir, locked?));
            }
            socket_dir = socket_dir.reopen(access)?;
        }
        let locked = socket_dir.lock()?;
        Ok((socket_dir, locked))
    }

    /// Whether the directory was removed while it is open here.
    pub(crate) fn is_removed(&self) -> bool {
        self.stat().is_ok_and(|stat| stat.st_nlink == 0)
    }

    pub(crate) fn stat(&self) -> rustix::io::Result<fs::Stat> {
        fs::fstat(&self.dir)
    }

    /// Removes the directory if it is empty and no process has its lock to make an endpoint there.
    pub(crate) fn remove_if_empty(&self) {
        // A process that leaves meanwhile finds the directory locked and does not remove it. So this checks again.
        for _ in 0..DIR_ATTEMPTS {
            let left = self.try_remove();
            if left != Err(Errno::NOTEMPTY) || !self.is_empty() {
                return;
            }
        }
    }

    /// Fails if the directory is not empty.
    fn try_remove(&self) -> rustix::io::Result<()> {
        let Some(_locked) = self.try_lock().filter(|_| !self.is_removed()) else { return Ok(()) };
        let seen_from_within = format!("../{}", self.layout.name());
        fs::unlinkat(&self.dir, seen_from_within, AtFlags::REMOVEDIR)
    }

    fn is_empty(&self) -> bool {
        self.file_names().is_ok_and(|names| names.iter().all(|name| matches!(&**name, "." | "..")))
    }

    /// A path to the parent of this open directory.
    pub(crate) fn held_parent(&self) -> PathBuf {
        self.held_path().join("..")
    }

    /// The lock of the directory, if no process has it.
    fn try_lock(&self) -> Option<DirLock> {
        let file = self.open_again().ok()?;
        fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(DirLock(file))
    }

    /// Opens the directory once more. A lock belongs to an open file, so each holder needs its own.
    pub(crate) fn open_again(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.dir, ".", flags, Mode::empty())
    }

    /// All endpoints, of living and dead owners. In the directory of a topic all have its name.
    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>> {
        Ok(self.endpoints_among(&self.file_names()?))
    }

    /// The endpoints among these file names.
    pub(crate) fn endpoints_among(&self, names: &[String]) -> Vec<Endpoint> {
        let fits = |endpoint: &Endpoint| !self.is_of_topic() || endpoint.name == self.layout.name();
        names.iter().filter_map(|name| Endpoint::parse(name)).filter(fits).collect()
    }

    /// The directories in it whose names are valid and not hidden.
    pub(crate) fn directories(&self) -> Result<Vec<String>> {
        // Some file systems do not report the type.
        let is_directory = |kind| matches!(kind, FileType::Directory | FileType::Unknown);
        let names = self.names_of(is_directory)?.into_iter();
        Ok(names.filter(|name| check_name(name).is_ok()).collect())
    }

    /// All file names, for [`SocketDir::endpoints_among`] and [`SocketDir::remove_left`].
    pub(crate) fn file_names(&self) -> Result<Vec<String>> {
        self.names_of(|_| true)
    }

    fn names_of(&self, wanted: impl Fn(FileType) -> bool) -> Result<Vec<String>> {
        // Opened again: each open file has its own position in the listing.
        let listing = self.open_again().and_then(fs::Dir::new);
        let listing = listing.map_err(|source| self.error("reading", source))?;
        let mut names = Vec::new();
        for item in listing {
            let item = item.map_err(|source| self.error("reading", source))?;
            if wanted(item.file_type()) {
                names.extend(item.file_name().to_str().map(str::to_owned));
            }
        }
        Ok(names)
    }

    /// Removes the sockets of dead owners among these names: endpoints, and hidden sockets from before the rename. Returns
    /// their paths.
    pub(crate) fn remove_left(&self, names: &[String], locked: &DirLock) -> Vec<PathBuf> {
        let mut removed = self.remove_hidden(names, locked);
        for endpoint in self.endpoints_among(names) {
            if is_dead(self.connect(&endpoint)) && self.unlink(&endpoint.file_name()) {
                removed.push(self.path().join(endpoint.file_name()));
            }
        }
        removed
    }

    /// Removes the hidden sockets among these names. As the lock is held, none of them belongs to a pool that is being
    /// made. An owner that is making its endpoint again tries again if its socket is removed.
    pub(crate) fn remove_hidden(&self, names: &[String], _: &DirLock) -> Vec<PathBuf> {
        let dead = |name: &&String| is_dead(seqpacket::connect(self.dir.as_fd(), name));
        let hidden = names.iter().filter(|name| is_hidden(name)).filter(dead);
        let removed = hidden.filter(|name| self.unlink(name));
        removed.map(|name| self.path().join(name)).collect()
    }

    /// Removes the endpoint of a dead owner, unless another process has the lock; it may be doing the same.
    pub(crate) fn remove_dead(&self, endpoint: &Endpoint) {
        let Some(_locked) = self.try_lock() else { return };
        // The owner may have made it again.
        if is_dead(self.connect(endpoint)) {
            self.remove(endpoint);
        }
    }

    /// Makes an endpoint. It listens from the moment it is visible.
    pub(crate) fn publish(&self, endpoint: &Endpoint, access: PoolAccess) -> Result<GuardedSocket> {
        match self.try_publish(endpoint, access) {
            // A process that cleans up may have taken the socket for a dead one, as it did not listen yet.
            Err(Error::Directory { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.try_publish(endpoint, access)
            }
            done => done,
        }
    }

    fn try_publish(&self, endpoint: &Endpoint, access: PoolAccess) -> Result<GuardedSocket> {
        let hidden = hidden_name(endpoint.uid);
        let listener = seqpacket::bind(self.dir.as_fd(), &hidden)
            .map_err(|source| self.io_error("making a socket", source))?;
        // The mode is set before the socket listens, so no process connects that the mode excludes.
        let done = self
            .permit(&hidden, access)
            .and_then(|()| seqpacket::listen(&listener))
            .and_then(|()| Ok(fs::renameat(&self.dir, &*hidden, &self.dir, endpoint.file_name())?));
        if let Err(source) = done {
            let _ = fs::unlinkat(&self.dir, &*hidden, AtFlags::empty());
            return Err(self.io_error("publishing a socket", source));
        }
        Ok(listener)
    }

    fn permit(&self, name: &str, access: PoolAccess) -> io::Result<()> {
        if let Some(group) = access.group() {
            fs::chownat(&self.dir, name, None, Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(fs::chmodat(&self.dir, name, access.socket_mode(), AtFlags::empty())?)
    }

    /// Whether the endpoint is still there. (A session manager may clean up the directory.)
    pub(crate) fn has(&self, endpoint: &Endpoint) -> bool {
        fs::statat(&self.dir, endpoint.file_name(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    pub(crate) fn remove(&self, endpoint: &Endpoint) {
        self.unlink(&endpoint.file_name());
    }

    /// Removes a file. Returns whether it is removed. Does not remove a directory that another process made under this name.
    fn unlink(&self, name: &str) -> bool {
        fs::unlinkat(&self.dir, name, AtFlags::empty()).is_ok()
    }

    /// Connects to the process that serves the endpoint. `ConnectionRefused` means that no process does.
    pub(crate) fn connect(&self, endpoint: &Endpoint) -> io::Result<GuardedSocket> {
        seqpacket::connect(self.dir.as_fd(), &endpoint.file_name())
    }

    fn error(&self, op: &'static str, source: Errno) -> Error {
        self.io_error(op, source.into())
    }

    pub(crate) fn io_error(&self, op: &'static str, source: io::Error) -> Error {
        Error::Directory { op, path: self.path(), source }
    }
}

/// Whether this user lacks a permission.
pub(crate) fn is_denied(error: &Error) -> bool {
    let Error::Directory { source, .. } = error else { return false };
    source.kind() == io::ErrorKind::PermissionDenied
}

/// Whether this process or the system is out of a resource. Then the error says nothing about the peer.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

/// Whether no process serves a socket: the connection is refused, or only a process holds the socket that was forked off
/// the dead owner.
fn is_dead(connected: io::Result<GuardedSocket>) -> bool {
    match connected {
        Ok(connection) => Peer::of(connection.as_fd()).is_ok_and(|peer| peer.has_ended()),
        Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_round_trip_and_other_files_are_ignored() {
        let endpoint = Endpoint { name: "camera.rgb".into(), uid: 0xfeed };
        assert_eq!(Endpoint::parse(&endpoint.file_name()), Some(endpoint));
        for name in ["", "x", "x@", "x@12", "x@zzzzzzzzzzzzzzzz", ".000000000000feed"] {
            assert_eq!(Endpoint::parse(name), None, "{name}");
        }
        for name in ["", "\x1b]0;owned\x07", "a\nb", "a b", "é", ".hidden", "-rf", "a@b"] {
            assert_eq!(Endpoint::parse(&format!("{name}@000000000000feed")), None, "{name:?}");
        }
        for uid in ["000000000000FEED", "+00000000000feed"] {
            assert_eq!(
                Endpoint::parse(&format!("camera@{uid}")),
                None,
                "another spelling of the number"
            );
        }
    }

    #[test]
    fn only_names_that_this_library_makes_are_hidden_sockets() {
        assert!(is_hidden(&hidden_name(0)) && is_hidden(&hidden_name(u64::MAX)));
        for name in ["", ".", "..", ".12", ".+000000000000001", "camera@000000000000feed"] {
            assert!(!is_hidden(name), "{name}");
        }
    }
}
