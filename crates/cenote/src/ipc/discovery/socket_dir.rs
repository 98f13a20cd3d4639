//! Where processes find each other: a directory of sockets, `$CENOTE_DIR/<namespace>/<kind>/`.
//!
//! An entry is one socket, named `<name>@<uid>`. It appears by rename, already listening, so
//! whoever sees it can connect. It outlives an owner that was killed: then connecting is refused,
//! and the next to look for the name, or `gc`, removes it. One that was killed before the rename
//! leaves a hidden socket, which the next to make an entry removes. Taking over and removing hold a
//! lock (flock) on the directory; finding and connecting need none.

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

/// One directory of sockets, held open.
#[derive(Debug)]
pub(crate) struct SocketDir {
    dir: OwnedFd,
    layout: DirLayout,
}

/// What one socket serves.
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
        // Others may make files here, and people read their names.
        check_name(name).ok()?;
        let endpoint = Endpoint { name: name.to_owned(), uid: u64::from_str_radix(uid, 16).ok()? };
        (endpoint.file_name() == file_name).then_some(endpoint)
    }
}

/// The name of a socket that is not listening yet.
fn hidden_name(uid: u64) -> String {
    format!(".{uid:016x}")
}

fn is_hidden(name: &str) -> bool {
    let uid = name.strip_prefix('.').and_then(|uid| u64::from_str_radix(uid, 16).ok());
    uid.is_some_and(|uid| hidden_name(uid) == name)
}

/// Holds the directory's lock until dropped.
#[derive(Debug)]
pub(crate) struct DirLock(OwnedFd);

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing unlocks as well; a fork in between would delay that.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl SocketDir {
    /// Opens the directory for one kind of thing, making it where needed.
    pub(crate) fn open(kind: &str, access: PoolAccess) -> Result<SocketDir> {
        SocketDir::make(DirLayout::of(kind)?, access)
    }

    /// Opens the directory for one kind of thing, if it is there.
    pub(crate) fn find(kind: &str) -> Result<Option<SocketDir>> {
        let layout = DirLayout::of(kind)?;
        Ok(layout.find()?.map(|dir| SocketDir { dir, layout }))
    }

    /// The names of the topics' directories that are there.
    pub(crate) fn topics() -> Result<Vec<String>> {
        SocketDir::find("topics")?.map_or(Ok(Vec::new()), |topics| topics.directories())
    }

    /// Every directory of sockets that may be there, to be opened a few at a time: there may be more
    /// than there are descriptors for. Topics that are closed to this user hide no pools.
    pub(crate) fn all_kinds() -> Result<Vec<String>> {
        let topics = match SocketDir::topics() {
            Err(error) if is_denied(&error) && SocketDir::find("pools").is_ok() => Vec::new(),
            topics => topics?,
        };
        let topics = topics.into_iter().map(|name| format!("topics/{name}"));
        Ok(iter::once("pools".to_owned()).chain(topics).collect())
    }

    /// Opens one directory of many, if it is there: one that is closed to this user hides no other. That
    /// this process can open no more is an error.
    pub(crate) fn find_one_of(kind: &str) -> Result<Option<SocketDir>> {
        match SocketDir::find(kind) {
            Err(Error::Directory { op, path, source }) if is_shortage(&source) => {
                Err(Error::Directory { op, path, source })
            }
            found => Ok(found.ok().flatten()),
        }
    }

    /// Whether its entries are the publishers of a topic.
    pub(crate) fn is_of_topic(&self) -> bool {
        self.layout.kind() == "topics"
    }

    /// Opens it again, for it may have been removed, wherever the environment points by now.
    pub(crate) fn reopen(&self, access: PoolAccess) -> Result<SocketDir> {
        SocketDir::make(self.layout.clone(), access)
    }

    fn make(layout: DirLayout, access: PoolAccess) -> Result<SocketDir> {
        Ok(SocketDir { dir: layout.make(access)?, layout })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.layout.path()
    }

    /// A path of this very directory, whatever became of it.
    pub(crate) fn held_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.dir.as_raw_fd()).into()
    }

    /// Waits for the directory's lock, which others hold for microseconds. Everybody who can read
    /// the directory can take it, so this does not wait for ever.
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

    /// The directory and its lock, made anew should somebody have removed it meanwhile: whoever does that
    /// has the lock.
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

    /// Whether the directory is no longer there, though it is held open here.
    pub(crate) fn is_removed(&self) -> bool {
        self.stat().is_ok_and(|stat| stat.st_nlink == 0)
    }

    pub(crate) fn stat(&self) -> rustix::io::Result<fs::Stat> {
        fs::fstat(&self.dir)
    }

    /// Removes the directory, unless there is something in it, or somebody is about to put something
    /// there.
    pub(crate) fn remove_if_empty(&self) {
        // Whoever leaves meanwhile finds it locked, and leaves it to this one, which has to look again.
        for _ in 0..DIR_ATTEMPTS {
            let left = self.try_remove();
            if left != Err(Errno::NOTEMPTY) || !self.is_empty() {
                return;
            }
        }
    }

    /// It fails if there is something in it.
    fn try_remove(&self) -> rustix::io::Result<()> {
        let Some(_locked) = self.try_lock().filter(|_| !self.is_removed()) else { return Ok(()) };
        let seen_from_within = format!("../{}", self.layout.name());
        fs::unlinkat(&self.dir, seen_from_within, AtFlags::REMOVEDIR)
    }

    fn is_empty(&self) -> bool {
        self.file_names().is_ok_and(|names| names.iter().all(|name| matches!(&**name, "." | "..")))
    }

    /// A path of the directory that this one is in.
    pub(crate) fn held_parent(&self) -> PathBuf {
        self.held_path().join("..")
    }

    /// The directory's lock, if nobody has it.
    fn try_lock(&self) -> Option<DirLock> {
        let file = self.open_again().ok()?;
        fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(DirLock(file))
    }

    /// The directory once more. A lock belongs to an open file: each holder has its own.
    pub(crate) fn open_again(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.dir, ".", flags, Mode::empty())
    }

    /// Every entry there is, of the living and the dead. In a topic's directory all have its name.
    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>> {
        Ok(self.endpoints_among(&self.file_names()?))
    }

    /// The entries among some names.
    pub(crate) fn endpoints_among(&self, names: &[String]) -> Vec<Endpoint> {
        let fits = |endpoint: &Endpoint| !self.is_of_topic() || endpoint.name == self.layout.name();
        names.iter().filter_map(|name| Endpoint::parse(name)).filter(fits).collect()
    }

    /// The directories in it whose names can be, hidden ones aside.
    pub(crate) fn directories(&self) -> Result<Vec<String>> {
        // Not every file system tells.
        let is_directory = |kind| matches!(kind, FileType::Directory | FileType::Unknown);
        let names = self.names_of(is_directory)?.into_iter();
        Ok(names.filter(|name| check_name(name).is_ok()).collect())
    }

    /// Whatever is in it, for [`SocketDir::endpoints_among`] and [`SocketDir::remove_left`].
    pub(crate) fn file_names(&self) -> Result<Vec<String>> {
        self.names_of(|_| true)
    }

    fn names_of(&self, wanted: impl Fn(FileType) -> bool) -> Result<Vec<String>> {
        // Opened anew: whoever reads at the same time has a place of its own in the list.
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

    /// Removes, of these names, what dead owners left: their entries, and the hidden sockets of those that
    /// died before their entry appeared. Tells which went.
    pub(crate) fn remove_left(&self, names: &[String], locked: &DirLock) -> Vec<PathBuf> {
        let mut removed = self.remove_hidden(names, locked);
        for endpoint in self.endpoints_among(names) {
            if is_dead(self.connect(&endpoint)) && self.unlink(&endpoint.file_name()) {
                removed.push(self.path().join(endpoint.file_name()));
            }
        }
        removed
    }

    /// Only the hidden sockets. With the lock held, none of them belongs to a pool that is being made;
    /// one that an owner makes anew is made again if this takes it away.
    pub(crate) fn remove_hidden(&self, names: &[String], _: &DirLock) -> Vec<PathBuf> {
        let dead = |name: &&String| is_dead(seqpacket::connect(self.dir.as_fd(), name));
        let hidden = names.iter().filter(|name| is_hidden(name)).filter(dead);
        let removed = hidden.filter(|name| self.unlink(name));
        removed.map(|name| self.path().join(name)).collect()
    }

    /// Removes the entry of a dead owner, unless somebody else is busy in the directory, who may
    /// be doing just that.
    pub(crate) fn remove_dead(&self, endpoint: &Endpoint) {
        let Some(_locked) = self.try_lock() else { return };
        // Its owner may have made it anew.
        if is_dead(self.connect(endpoint)) {
            self.remove(endpoint);
        }
    }

    /// Makes an entry that is listening from the moment it can be seen.
    pub(crate) fn publish(&self, endpoint: &Endpoint, access: PoolAccess) -> Result<GuardedSocket> {
        match self.try_publish(endpoint, access) {
            // Whoever cleans up may have taken it for a dead one's, as it was not listening yet.
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
        // Nobody can connect before it listens, so nobody does whom the mode is to keep out.
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

    /// Whether the entry is still there. (A user's session manager may clean up behind us.)
    pub(crate) fn has(&self, endpoint: &Endpoint) -> bool {
        fs::statat(&self.dir, endpoint.file_name(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    pub(crate) fn remove(&self, endpoint: &Endpoint) {
        self.unlink(&endpoint.file_name());
    }

    /// Whether it is gone by that. Others may have made something of that name which is no socket, such as a
    /// directory: that stays.
    fn unlink(&self, name: &str) -> bool {
        fs::unlinkat(&self.dir, name, AtFlags::empty()).is_ok()
    }

    /// Connects to whoever serves the entry. `ConnectionRefused` means that nobody does any more.
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

/// Whether this user may not look there.
pub(crate) fn is_denied(error: &Error) -> bool {
    let Error::Directory { source, .. } = error else { return false };
    source.kind() == io::ErrorKind::PermissionDenied
}

/// Whether this process or the machine has run out of something: that tells nothing of whom it asked.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

/// Whether nobody serves the socket that was connected to: it is refused, or kept by a process that
/// was forked off a dead owner in the wrong moment.
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
    fn entries_round_trip_and_strangers_are_ignored() {
        let endpoint = Endpoint { name: "camera.rgb".into(), uid: 0xfeed };
        assert_eq!(Endpoint::parse(&endpoint.file_name()), Some(endpoint));
        for name in ["", "x", "x@", "x@12", "x@zzzzzzzzzzzzzzzz", ".000000000000feed"] {
            assert_eq!(Endpoint::parse(name), None, "{name}");
        }
        for name in ["", "\x1b]0;owned\x07", "a\nb", "a b", "é", ".hidden", "-rf", "a@b"] {
            assert_eq!(Endpoint::parse(&format!("{name}@000000000000feed")), None, "{name:?}");
        }
        for uid in ["000000000000FEED", "+00000000000feed"] {
            assert_eq!(Endpoint::parse(&format!("camera@{uid}")), None, "it is written otherwise");
        }
    }

    #[test]
    fn only_our_own_hidden_names_are_hidden() {
        assert!(is_hidden(&hidden_name(0)) && is_hidden(&hidden_name(u64::MAX)));
        for name in ["", ".", "..", ".12", ".+000000000000001", "camera@000000000000feed"] {
            assert!(!is_hidden(name), "{name}");
        }
    }
}
