//! The directories of sockets: `$CENOTE_DIR/<namespace>/<kind>`.
//!
//! The user chooses the first one: the library makes it if it is missing, and otherwise leaves it as it is. The library
//! makes the directories below it. At first they are for this user alone. The first pool that admits other users opens
//! them; only this user can make or remove anything there.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::{env, iter};

use rustix::fs::{self, CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{Error, Result};
use crate::intervals::DIR_ATTEMPTS;
use crate::ipc::discovery::access::{LIST, PoolAccess, SEARCH};

/// The environment variable with the directory in which all processes find each other.
pub const DIR_ENV: &str = "CENOTE_DIR";

/// The environment variable with the namespace in it.
pub const NAMESPACE_ENV: &str = "CENOTE_NAMESPACE";

/// The longest name. It leaves room in a file name for the uid.
const MAX_NAME: usize = 128;

/// The location of a directory of sockets.
#[derive(Debug, Clone)]
pub(crate) struct DirLayout {
    root: PathBuf,
    /// The library chose the root: `CENOTE_DIR` is not set.
    ours: bool,
    /// The namespace, and the directories below it.
    below: Vec<String>,
}

impl DirLayout {
    /// The directory of one kind of endpoint, under the root and namespace of the environment. A kind may be a path.
    pub(crate) fn of(kind: &str) -> Result<DirLayout> {
        let (root, ours) = root()?;
        let below = iter::once(namespace()?).chain(kind.split('/').map(str::to_owned)).collect();
        Ok(DirLayout { root, ours, below })
    }

    /// The first part of the kind.
    pub(crate) fn kind(&self) -> &str {
        self.below.get(1).map_or("", String::as_str)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root.join(self.below.iter().collect::<PathBuf>())
    }

    /// The name of the directory in its parent.
    pub(crate) fn name(&self) -> &str {
        self.below.last().map_or("", String::as_str)
    }

    /// Opens the directory, and makes it where it is missing, so that the admitted users can list it. Another process may
    /// remove an empty directory on the way (`cenote doctor` does). Then this starts again.
    pub(crate) fn make(&self, access: PoolAccess) -> Result<OwnedFd> {
        if self.ours && access != PoolAccess::SameUser {
            return Err(Error::GroupNeedsDir);
        }
        for _ in 1..DIR_ATTEMPTS {
            match self.try_make(access) {
                Err(Error::Directory { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                made => return made,
            }
        }
        self.try_make(access)
    }

    fn try_make(&self, access: PoolAccess) -> Result<OwnedFd> {
        let mut step = Step { path: self.root.clone(), access };
        let root = step.make_root(self.root_flags())?;
        self.check_root(&root)?;
        let (mut dir, depth) = self.go_down(root, access);
        let (there, lacking) = self.below.split_at(depth);
        step.path.extend(there);
        for name in lacking {
            step.path.push(name);
            dir = step.make(dir.as_fd(), OsStr::new(name))?;
        }
        Ok(dir)
    }

    /// Opens the deepest existing directory with one system call, and returns how deep it is: most often the last one, or
    /// its parent. If other users are admitted, each directory has to be checked, so it returns the root.
    fn go_down(&self, root: OwnedFd, access: PoolAccess) -> (OwnedFd, usize) {
        let all = self.below.len();
        if access == PoolAccess::SameUser {
            for depth in [all, all.saturating_sub(1)] {
                match open_below(&root, &self.below[..depth]) {
                    Ok(dir) => return (dir, depth),
                    Err(Errno::NOENT) => {}
                    Err(_) => break, // going step by step shows which one fails
                }
            }
        }
        (root, 0)
    }

    /// Opens the directory if it exists. Makes nothing.
    pub(crate) fn find(&self) -> Result<Option<OwnedFd>> {
        let error = |source| Error::Directory {
            op: "opening",
            path: self.path(),
            source: Errno::into(source),
        };
        let root = absent(fs::open(&self.root, self.root_flags(), Mode::empty())).map_err(error)?;
        let Some(root) = root else { return Ok(None) };
        self.check_root(&root)?;
        absent(open_below(&root, &self.below)).map_err(error)
    }

    /// A root that the user chose may be a link.
    fn root_flags(&self) -> OFlags {
        if self.ours { open_flags() } else { open_flags() & !OFlags::NOFOLLOW }
    }

    /// Every user can write to `/dev/shm`. So the directory there must belong to this user, and others must not write it.
    fn check_root(&self, dir: &OwnedFd) -> Result<()> {
        if !self.ours {
            return Ok(());
        }
        let stat = fs::fstat(dir).map_err(|source| Error::os("fstat", source))?;
        let private = stat.st_uid == geteuid().as_raw() && stat.st_mode & 0o077 == 0;
        if private {
            return Ok(());
        }
        let (owner, mode) = (stat.st_uid, stat.st_mode & 0o7777);
        Err(Error::UntrustedDir { path: self.root.clone(), owner, mode })
    }
}

fn open_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Opens a directory below another one without following links. Uses one call if the kernel has it (Linux 5.6) and no
/// sandbox forbids it.
fn open_below(dir: &OwnedFd, names: &[String]) -> rustix::io::Result<OwnedFd> {
    let path: PathBuf = names.iter().collect();
    match fs::openat2(dir, &path, open_flags(), Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Unknown, forbidden, or a link: going step by step shows which.
        Err(error) if error != Errno::NOENT => open_step_by_step(dir, names),
        opened => opened,
    }
}

fn open_step_by_step(dir: &OwnedFd, names: &[String]) -> rustix::io::Result<OwnedFd> {
    let open = |dir: OwnedFd, name| fs::openat(dir, name, open_flags(), Mode::empty());
    names.iter().try_fold(fs::openat(dir, ".", open_flags(), Mode::empty())?, open)
}

fn absent(opened: rustix::io::Result<OwnedFd>) -> rustix::io::Result<Option<OwnedFd>> {
    match opened {
        Err(Errno::NOENT) => Ok(None),
        opened => opened.map(Some),
    }
}

/// One directory on the way, and the users for whom it is made.
struct Step {
    path: PathBuf,
    access: PoolAccess,
}

impl Step {
    fn make_root(&self, flags: OFlags) -> Result<OwnedFd> {
        let there = absent(fs::open(&self.path, flags, Mode::empty()));
        let dir = match there.map_err(|source| self.error("opening", source))? {
            Some(dir) => dir,
            None => self.make_new_root(flags)?,
        };
        self.check(&dir, SEARCH)?;
        Ok(dir)
    }

    fn make_new_root(&self, flags: OFlags) -> Result<OwnedFd> {
        let made = self.mkdir(CWD, self.path.as_os_str())?;
        let dir = self.open(CWD, self.path.as_os_str(), flags)?;
        if made {
            self.admit(&dir)?;
        }
        Ok(dir)
    }

    fn make(&self, parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd> {
        let dir = self.mkdir_and_open(parent, name)?;
        let stat = self.stat(&dir)?;
        if self.access.has(LIST, &stat) {
            return Ok(dir);
        }
        if stat.st_uid == geteuid().as_raw() {
            self.admit(&dir)?;
        }
        self.check(&dir, LIST)?;
        Ok(dir)
    }

    /// Another process may remove the directory between the two calls.
    fn mkdir_and_open(&self, parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd> {
        for _ in 1..DIR_ATTEMPTS {
            self.mkdir(parent, name)?;
            match fs::openat(parent, name, open_flags(), Mode::empty()) {
                Err(Errno::NOENT) => {}
                opened => return opened.map_err(|source| self.error("opening", source)),
            }
        }
        self.open(parent, name, open_flags())
    }

    /// Makes a directory for this user alone. Returns whether it did not exist.
    fn mkdir(&self, parent: BorrowedFd<'_>, name: &OsStr) -> Result<bool> {
        match fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(source) => Err(self.error("making", source)),
        }
    }

    fn open(&self, parent: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd> {
        fs::openat(parent, name, flags, Mode::empty())
            .map_err(|source| self.error("opening", source))
    }

    fn stat(&self, dir: &OwnedFd) -> Result<Stat> {
        fs::fstat(dir).map_err(|source| self.error("looking at", source))
    }

    /// Lets the admitted users list a directory of ours, but not change it. Sets the group first, so that no other group
    /// is admitted meanwhile. Changes nothing if another group is admitted already.
    fn admit(&self, dir: &OwnedFd) -> Result<()> {
        let stat = self.stat(dir)?;
        let group = self.access.group().filter(|group| group.as_raw() != stat.st_gid);
        if group.is_some() && stat.st_mode & 0o070 != 0 {
            return Ok(());
        }
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 | self.access.dir_mode(LIST));
        let done = group.map_or(Ok(()), |group| fs::fchown(dir, None, Some(group)));
        done.and_then(|()| fs::fchmod(dir, mode))
            .map_err(|source| self.error("setting permissions of", source))
    }

    /// Fails if the admitted users cannot reach the directory: the pool would be of no use to them. An access list
    /// (acl(5)) may admit them, so a directory that has one passes.
    fn check(&self, dir: &OwnedFd, what: u32) -> Result<()> {
        let stat = self.stat(dir)?;
        let listed = || fs::fgetxattr(dir, "system.posix_acl_access", &mut [0_u8; 0]).is_ok();
        if self.access.has(what, &stat) || listed() {
            return Ok(());
        }
        let (group, mode) = (stat.st_gid, stat.st_mode & 0o7777);
        Err(Error::ClosedDir { path: self.path.clone(), group, mode })
    }

    fn error(&self, op: &'static str, source: Errno) -> Error {
        Error::Directory { op, path: self.path.clone(), source: source.into() }
    }
}

/// The root directory, and whether the library chose it.
fn root() -> Result<(PathBuf, bool)> {
    match env::var_os(DIR_ENV) {
        Some(dir) if dir.is_empty() || !Path::new(&dir).is_absolute() => Err(Error::BadEnv {
            name: DIR_ENV,
            value: dir.to_string_lossy().into(),
            expected: "an absolute path",
        }),
        Some(dir) => Ok((dir.into(), false)),
        None => Ok((format!("/dev/shm/cenote-{}", geteuid().as_raw()).into(), true)),
    }
}

fn namespace() -> Result<String> {
    let Some(name) = env::var_os(NAMESPACE_ENV) else { return Ok("default".to_owned()) };
    let value = name.to_string_lossy();
    let expected = "a name of 1 to 128 letters, digits, dots, dashes and underscores, \
                    which starts with none of dot and dash";
    let bad = |_| Error::BadEnv { name: NAMESPACE_ENV, value: value.clone().into(), expected };
    check_name(&value).map_err(bad)?;
    Ok(value.into_owned())
}

/// The directory in which processes find each other: `$CENOTE_DIR/<namespace>`, from the environment. The first process
/// that shares something makes it, so it may not exist yet.
///
/// ```
/// println!("{}", cenote::namespace_dir()?.display());
/// # Ok::<(), cenote::Error>(())
/// ```
pub fn namespace_dir() -> Result<PathBuf> {
    Ok(root()?.0.join(namespace()?))
}

/// Checks a name: it becomes part of a file name, and people type it on command lines.
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

#[cfg(test)]
mod tests {
    use super::*;

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
