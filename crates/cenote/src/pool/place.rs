//! Where processes find each other: a directory of sockets, `$CENOTE_DIR/<namespace>/<kind>/`.
//!
//! An entry is one socket, named `<name>@<uid>`. It appears by rename, already listening, so
//! whoever sees it can connect. It outlives an owner that was killed: then connecting is refused,
//! and the next to look for the name, or `gc`, removes it. One that was killed before the rename
//! leaves a hidden socket, which the next to make an entry removes. Taking over and removing hold a
//! lock (flock) on the directory; finding and connecting need none.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, io};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{Error, Result};
use crate::os::unix;

/// The environment variable that names the directory everything is found under.
pub const DIR_ENV: &str = "CENOTE_DIR";

/// The environment variable that names the namespace in it.
pub const NAMESPACE_ENV: &str = "CENOTE_NAMESPACE";

/// How long somebody may hold the lock of a directory.
const LOCK: Duration = Duration::from_secs(5);

/// Leaves room in a file name for the uid and more.
const MAX_NAME: usize = 128;

/// Who may find and attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PoolAccess {
    /// Processes of the same user.
    #[default]
    SameUser,
    /// Also members of the group with this id. Needs a `CENOTE_DIR` that the group shares.
    Group(u32),
    /// Whoever this mode of the socket lets connect, as in `0o666` for everybody. Needs a
    /// `CENOTE_DIR` that they can look into.
    Mode(u32),
}

/// One directory of sockets, held open.
#[derive(Debug)]
pub(crate) struct Place {
    dir: OwnedFd,
    path: PathBuf,
}

/// What one socket serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) uid: u64,
}

impl Entry {
    fn file_name(&self) -> String {
        format!("{}@{:016x}", self.name, self.uid)
    }

    fn parse(file_name: &str) -> Option<Entry> {
        let (name, uid) = file_name.rsplit_once('@')?;
        if uid.len() != 16 {
            return None;
        }
        Some(Entry { name: name.to_owned(), uid: u64::from_str_radix(uid, 16).ok()? })
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
pub(crate) struct Locked(OwnedFd);

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing unlocks as well; a fork in between would delay that.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Place {
    /// Opens the directory for one kind of thing, making it where needed.
    pub(crate) fn open(kind: &str, access: PoolAccess) -> Result<Place> {
        let (root, ours) = root(access)?;
        let namespace = namespace()?;
        let root_fd = open_dir(&root, access)?;
        if ours {
            check_private(&root, &root_fd)?;
        }
        let path = root.join(namespace);
        open_dir(&path, access)?;
        let path = path.join(kind);
        let dir = open_dir(&path, access)?;
        Ok(Place { dir, path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the directory's lock, which others hold for microseconds. Everybody who can read
    /// the directory can take it, so this does not wait for ever.
    pub(crate) fn lock(&self) -> Result<Locked> {
        let file = self.lock_file().map_err(|source| self.error("opening", source))?;
        let start = Instant::now();
        while let Err(source) = fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            let busy = matches!(source, Errno::WOULDBLOCK | Errno::INTR);
            if !busy || start.elapsed() > LOCK {
                return Err(self.error("locking", source));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Locked(file))
    }

    /// The directory's lock, if nobody has it.
    fn try_lock(&self) -> Option<Locked> {
        let file = self.lock_file().ok()?;
        fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Locked(file))
    }

    /// A lock belongs to an open file: each holder opens the directory anew.
    pub(crate) fn lock_file(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.dir, ".", flags, Mode::empty())
    }

    /// Every entry there is, of the living and the dead.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.file_names()?.iter().filter_map(|name| Entry::parse(name)).collect())
    }

    fn file_names(&self) -> Result<Vec<String>> {
        let listing =
            fs::Dir::read_from(&self.dir).map_err(|source| self.error("reading", source))?;
        let mut names = Vec::new();
        for item in listing {
            let item = item.map_err(|source| self.error("reading", source))?;
            names.extend(item.file_name().to_str().map(str::to_owned));
        }
        Ok(names)
    }

    /// Removes the hidden sockets of those that died before their entry appeared. The caller holds
    /// the lock, so none of them belongs to a pool that is being made; one that an owner makes anew
    /// is made again if this takes it away.
    pub(crate) fn remove_hidden(&self) -> Result<()> {
        for name in self.file_names()?.iter().filter(|name| is_hidden(name)) {
            if unix::connect(self.dir.as_fd(), name).is_err_and(is_refused) {
                let _ = fs::unlinkat(&self.dir, name, AtFlags::empty());
            }
        }
        Ok(())
    }

    /// Removes the entry of a dead owner, unless somebody else is busy in the directory, who may
    /// be doing just that.
    pub(crate) fn remove_dead(&self, entry: &Entry) {
        let Some(_locked) = self.try_lock() else { return };
        // Its owner may have made it anew.
        if self.connect(entry).is_err_and(is_refused) {
            self.remove(entry);
        }
    }

    /// Makes an entry that is listening from the moment it can be seen.
    pub(crate) fn publish(&self, entry: &Entry, access: PoolAccess) -> Result<OwnedFd> {
        match self.try_publish(entry, access) {
            // Whoever cleans up may have taken it for a dead one's, as it was not listening yet.
            Err(Error::Directory { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.try_publish(entry, access)
            }
            done => done,
        }
    }

    fn try_publish(&self, entry: &Entry, access: PoolAccess) -> Result<OwnedFd> {
        let hidden = hidden_name(entry.uid);
        let listener = unix::listen(self.dir.as_fd(), &hidden)
            .map_err(|source| self.io_error("making a socket", source))?;
        let done = self
            .permit(&hidden, access)
            .and_then(|()| fs::renameat(&self.dir, &*hidden, &self.dir, entry.file_name()));
        if let Err(source) = done {
            let _ = fs::unlinkat(&self.dir, &*hidden, AtFlags::empty());
            return Err(self.error("publishing a socket", source));
        }
        Ok(listener)
    }

    fn permit(&self, name: &str, access: PoolAccess) -> rustix::io::Result<()> {
        let mode = match access {
            PoolAccess::SameUser => Mode::RUSR | Mode::WUSR,
            PoolAccess::Group(gid) => {
                let group = Some(fs::Gid::from_raw(gid));
                fs::chownat(&self.dir, name, None, group, AtFlags::SYMLINK_NOFOLLOW)?;
                Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP
            }
            PoolAccess::Mode(mode) => Mode::from_raw_mode(mode & 0o777),
        };
        fs::chmodat(&self.dir, name, mode, AtFlags::empty())
    }

    /// Whether the entry is still there. (A user's session manager may clean up behind us.)
    pub(crate) fn has(&self, entry: &Entry) -> bool {
        fs::statat(&self.dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    pub(crate) fn remove(&self, entry: &Entry) {
        let _ = fs::unlinkat(&self.dir, entry.file_name(), AtFlags::empty());
    }

    /// Connects to whoever serves the entry. `ConnectionRefused` means that nobody does any more.
    pub(crate) fn connect(&self, entry: &Entry) -> io::Result<OwnedFd> {
        unix::connect(self.dir.as_fd(), &entry.file_name())
    }

    fn error(&self, op: &'static str, source: Errno) -> Error {
        self.io_error(op, source.into())
    }

    fn io_error(&self, op: &'static str, source: io::Error) -> Error {
        Error::Directory { op, path: self.path.clone(), source }
    }
}

/// What a socket is called until it listens.
#[allow(clippy::needless_pass_by_value, reason = "for `is_err_and`")]
fn is_refused(error: io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// The root directory, and whether we chose it ourselves.
fn root(access: PoolAccess) -> Result<(PathBuf, bool)> {
    match env::var_os(DIR_ENV) {
        Some(dir) if dir.is_empty() || !Path::new(&dir).is_absolute() => Err(Error::BadEnv {
            name: DIR_ENV,
            value: dir.to_string_lossy().into(),
            expected: "an absolute path",
        }),
        Some(dir) => Ok((dir.into(), false)),
        None if access != PoolAccess::SameUser => Err(Error::GroupNeedsDir),
        None => Ok((format!("/dev/shm/cenote-{}", geteuid().as_raw()).into(), true)),
    }
}

fn namespace() -> Result<String> {
    match env::var_os(NAMESPACE_ENV) {
        None => Ok("default".to_owned()),
        Some(name) => {
            let name = name.to_string_lossy();
            check_name(&name)?;
            Ok(name.into_owned())
        }
    }
}

/// A name becomes part of a file name, and is typed on command lines.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let refuse = |rule| Err(Error::BadName { given: name.into(), rule });
    if name.is_empty() || name.len() > MAX_NAME {
        return refuse("it must have 1 to 128 characters");
    }
    if name.starts_with(['.', '-']) {
        return refuse("it must not start with a dot or a dash");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        return refuse("it may have only letters, digits, dots, dashes and underscores");
    }
    Ok(())
}

fn open_dir(path: &Path, access: PoolAccess) -> Result<OwnedFd> {
    let error =
        |op, source: Errno| Error::Directory { op, path: path.into(), source: source.into() };
    match fs::mkdir(path, Mode::RWXU) {
        Ok(()) => {
            permit_dir(path, access).map_err(|source| error("setting permissions of", source))?;
        }
        Err(Errno::EXIST) => {}
        Err(source) => return Err(error("making", source)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty()).map_err(|source| error("opening", source))
}

/// Others may look into directories that are made for it, and change nothing.
fn permit_dir(path: &Path, access: PoolAccess) -> rustix::io::Result<()> {
    match access {
        PoolAccess::SameUser => Ok(()),
        PoolAccess::Group(gid) => {
            fs::chown(path, None, Some(fs::Gid::from_raw(gid)))?;
            fs::chmod(path, Mode::RWXU | Mode::RGRP | Mode::XGRP)
        }
        PoolAccess::Mode(mode) => {
            let group = if mode & 0o070 == 0 { 0 } else { 0o050 };
            let others = if mode & 0o007 == 0 { 0 } else { 0o005 };
            fs::chmod(path, Mode::from_raw_mode(0o700 | group | others))
        }
    }
}

/// `/dev/shm` is everybody's: the directory there must be ours, and nobody else's to write.
fn check_private(path: &Path, dir: &OwnedFd) -> Result<()> {
    let stat = fs::fstat(dir).map_err(|source| Error::os("fstat", source))?;
    let open_to_others = stat.st_mode & 0o077 != 0;
    if stat.st_uid == geteuid().as_raw() && !open_to_others {
        return Ok(());
    }
    Err(Error::UntrustedDir { path: path.into(), owner: stat.st_uid, mode: stat.st_mode & 0o7777 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_and_strangers_are_ignored() {
        let entry = Entry { name: "camera.rgb".into(), uid: 0xfeed };
        assert_eq!(Entry::parse(&entry.file_name()), Some(entry));
        for name in ["", "x", "x@", "x@12", "x@zzzzzzzzzzzzzzzz", ".000000000000feed"] {
            assert_eq!(Entry::parse(name), None, "{name}");
        }
    }

    #[test]
    fn only_our_own_hidden_names_are_hidden() {
        assert!(is_hidden(&hidden_name(0)) && is_hidden(&hidden_name(u64::MAX)));
        for name in ["", ".", "..", ".12", ".+000000000000001", "camera@000000000000feed"] {
            assert!(!is_hidden(name), "{name}");
        }
    }

    #[test]
    fn names_that_would_be_paths_are_refused() {
        for name in ["", ".", "..", "a/b", "a@b", "-x", "a b", "a\0b", "é", &"x".repeat(129)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["1", "camera.rgb", "A-b_c.9", &"x".repeat(128)] {
            check_name(name).unwrap();
        }
    }
}
