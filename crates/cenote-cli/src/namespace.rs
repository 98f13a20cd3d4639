//! Namespaces of processes that this program starts to try something out: a demo, a benchmark.
//!
//! One belongs to whoever holds its lock: the command, and every process that it started, for they inherit
//! it. So when nobody does, all of them are gone, however they ended, and `cenote gc` removes what is left.

use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;

use cenote::namespace_dir;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};

use crate::failure::{Failure, Outcome};

/// What namespaces of ours are for.
const PURPOSES: [&str; 2] = ["demo", "bench"];

/// How often one is made that others remove: `gc` may come before it is locked.
const ATTEMPTS: usize = 16;

/// A namespace that is removed in the end.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) name: String,
    path: PathBuf,
    _lock: OwnedFd,
}

impl Namespace {
    pub(crate) fn new(what: &str) -> Outcome<Namespace> {
        let root = root()?;
        // Numbers of processes are not unique where containers share the directory.
        let random = RandomState::new().hash_one(process::id());
        let name = format!("{what}-{}-{random:016x}", process::id());
        let path = root.join(&name);
        let failed = |error| Failure::of_file("making", &path, &error);
        for _ in 0..ATTEMPTS {
            DirBuilder::new().mode(0o700).recursive(true).create(&path).map_err(failed)?;
            if let Some(lock) = lock(&path).map_err(failed)? {
                return Ok(Namespace { name, path, _lock: lock });
            }
        }
        Err(Failure::Failed(format!("{} is removed again and again", path.display())))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Whatever is left is sockets of the dead, which anybody may remove.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes namespaces of demos and benchmarks of which no process is left, and tells which.
pub(crate) fn remove_leftovers() -> Outcome<Vec<PathBuf>> {
    let root = root()?;
    let Ok(listing) = fs::read_dir(&root) else { return Ok(Vec::new()) };
    let names = listing.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let paths = names.filter(|name| is_ours(name)).map(|name| root.join(name));
    // Those of other users stay.
    let remove = |path: &PathBuf| {
        let lock = lock(path).ok().flatten();
        lock.is_some_and(|_lock| fs::remove_dir_all(path).is_ok())
    };
    Ok(paths.filter(remove).collect())
}

/// Where namespaces are.
fn root() -> Outcome<PathBuf> {
    let dir = namespace_dir()?;
    Ok(dir.parent().map_or_else(|| dir.clone(), Path::to_path_buf))
}

/// The lock of a directory, which children inherit; `None` if somebody has it, or the directory is gone.
pub(crate) fn lock(path: &Path) -> io::Result<Option<OwnedFd>> {
    let opened = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
    let dir = match opened.map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let locked = flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok();
    let is_there = fstat(&dir)?.st_nlink > 0;
    Ok((locked && is_there).then_some(dir))
}

/// As [`Namespace::new`] names them; users name theirs otherwise.
fn is_ours(name: &str) -> bool {
    let mut parts = name.split('-');
    let mut part = || parts.next().unwrap_or_default();
    let (what, pid, random) = (part(), part(), part());
    PURPOSES.contains(&what)
        && pid.parse::<u32>().is_ok()
        && random.len() == 16
        && u64::from_str_radix(random, 16).is_ok()
        && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_namespaces_are_ours() {
        assert!(is_ours("demo-12-0123456789abcdef") && is_ours("bench-1-ffffffffffffffff"));
        for name in [
            "demo",
            "demo-12",
            "demo-robot-0123456789abcdef",
            "demo-12-0123456789abcdef-x",
            "demo-12-0123456789abcdeg",
            "test-12-0123456789abcdef",
            "default",
        ] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
