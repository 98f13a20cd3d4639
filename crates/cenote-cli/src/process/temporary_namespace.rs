//! The namespaces of a demo or a benchmark.
//!
//! The command and every process that it starts hold the lock of the namespace's directory: children inherit the
//! open file. If the lock is free, all of them have ended, in whatever way, and `cenote gc` removes the directory.

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

/// The first part of the names of these namespaces.
const PURPOSES: [&str; 2] = ["demo", "bench"];

/// How often to create the directory if it disappears: `gc` may remove it before it is locked.
const ATTEMPTS: usize = 16;

/// A namespace that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct TemporaryNamespace {
    pub(crate) name: String,
    path: PathBuf,
    _lock: OwnedFd,
}

impl TemporaryNamespace {
    /// Creates and locks a namespace for one of [`PURPOSES`].
    pub(crate) fn new(purpose: &str) -> Outcome<TemporaryNamespace> {
        let root = root()?;
        // Process ids are not unique if containers share the directory.
        let random = RandomState::new().hash_one(process::id());
        let name = format!("{purpose}-{}-{random:016x}", process::id());
        let path = root.join(&name);
        let failed = |error| Failure::of_file("creating", &path, &error);
        for _ in 0..ATTEMPTS {
            DirBuilder::new().mode(0o700).recursive(true).create(&path).map_err(failed)?;
            if let Some(lock) = lock_dir(&path).map_err(failed)? {
                return Ok(TemporaryNamespace { name, path, _lock: lock });
            }
        }
        Err(Failure::Failed(format!(
            "{} was removed {ATTEMPTS} times before it was locked",
            path.display()
        )))
    }
}

impl Drop for TemporaryNamespace {
    fn drop(&mut self) {
        // Only sockets of dead processes are left in it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the namespaces of demos and benchmarks without a living process. Returns their directories.
pub(crate) fn remove_leftovers() -> Outcome<Vec<PathBuf>> {
    let root = root()?;
    let Ok(listing) = fs::read_dir(&root) else { return Ok(Vec::new()) };
    let names = listing.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let paths = names.filter(|name| is_temporary(name)).map(|name| root.join(name));
    // Namespaces of other users stay, because locking or removing them fails.
    let remove = |path: &PathBuf| {
        let lock = lock_dir(path).ok().flatten();
        lock.is_some_and(|_lock| fs::remove_dir_all(path).is_ok())
    };
    Ok(paths.filter(remove).collect())
}

/// The directory that contains all namespaces.
fn root() -> Outcome<PathBuf> {
    let dir = namespace_dir()?;
    Ok(dir.parent().map_or_else(|| dir.clone(), Path::to_path_buf))
}

/// Locks a directory. Child processes inherit the lock. Returns `None` if another process holds it, or if the
/// directory does not exist any more.
pub(crate) fn lock_dir(path: &Path) -> io::Result<Option<OwnedFd>> {
    let opened = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
    let dir = match opened.map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let locked = flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok();
    let exists = fstat(&dir)?.st_nlink > 0;
    Ok((locked && exists).then_some(dir))
}

/// Whether [`TemporaryNamespace::new`] made this name.
fn is_temporary(name: &str) -> bool {
    let mut parts = name.split('-');
    let mut part = || parts.next().unwrap_or_default();
    let (purpose, pid, random) = (part(), part(), part());
    PURPOSES.contains(&purpose)
        && pid.parse::<u32>().is_ok()
        && random.len() == 16
        && u64::from_str_radix(random, 16).is_ok()
        && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_made_here_are_temporary() {
        assert!(
            is_temporary("demo-12-0123456789abcdef") && is_temporary("bench-1-ffffffffffffffff")
        );
        for name in [
            "demo",
            "demo-12",
            "demo-robot-0123456789abcdef",
            "demo-12-0123456789abcdef-x",
            "demo-12-0123456789abcdeg",
            "test-12-0123456789abcdef",
            "default",
        ] {
            assert!(!is_temporary(name), "{name}");
        }
    }
}
