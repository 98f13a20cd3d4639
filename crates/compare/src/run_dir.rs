//! The directories of a run: one for temporary files, one in memory.
//!
//! Every library is measured with its files where it keeps them by default: cenote in memory, peers in the directory for
//! temporary files.
//!
//! The process that holds the lock of a directory owns it. A run that finds an unlocked directory of another run
//! removes it, because that run was killed.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::id as pid;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::process::geteuid;

use crate::Result;

/// The environment variable by which the measuring process and its children find the directory.
pub(crate) const VARIABLE: &str = "COMPARE_RUN";

/// The names of the directories, before the process id.
const NAME: &str = "cenote-compare-";

/// The parent of the directory in memory.
const MEMORY: &str = "/dev/shm";

/// The subdirectory for the files of peers. Only directories that have it are removed as those of a run.
const PEERS: &str = "peers";

/// How often to create the directory: before it is locked, another run may remove it as that of a dead run.
const ATTEMPTS: usize = 16;

/// The directories of this run, with their lock. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct RunDir {
    dir: PathBuf,
    _lock: OwnedFd,
}

impl RunDir {
    /// Creates the directories, and removes those of runs that were killed.
    pub(crate) fn create() -> Result<RunDir> {
        remove_leftovers(&std::env::temp_dir());
        let dir = std::env::temp_dir().join(format!("{NAME}{}", pid()));
        for _ in 0..ATTEMPTS {
            fs::create_dir_all(dir.join(PEERS))?;
            if let Some(lock) = lock(&dir)? {
                let run = RunDir { dir, _lock: lock };
                // A killed run may have had the same process id.
                let _ = fs::remove_dir_all(memory_dir(pid()));
                fs::DirBuilder::new().mode(0o700).create(memory_dir(pid()))?;
                return Ok(run);
            }
        }
        Err(format!("another process holds the lock of {}", dir.display()).into())
    }

    /// The directory for temporary files.
    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// The directory in memory.
    pub(crate) fn memory(&self) -> PathBuf {
        memory_dir(pid())
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.dir) {
            eprintln!("{}: {error}", self.dir.display());
        }
    }
}

/// Locks a directory. Returns `None` if another process holds the lock, if another user owns the directory, or if it
/// does not exist any more.
fn lock(dir: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match open(dir, flags, Mode::empty()).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let locked = flock(&opened, FlockOperation::NonBlockingLockExclusive).is_ok();
    let found = fstat(&opened)?;
    let is_ours = found.st_nlink > 0 && found.st_uid == geteuid().as_raw();
    Ok((locked && is_ours).then_some(opened))
}

/// Removes the directories of runs that were killed.
fn remove_leftovers(temp: &Path) {
    let Ok(listing) = fs::read_dir(temp) else { return };
    for entry in listing.flatten().filter(|entry| pid_of(&entry.path()).is_some()) {
        let is_a_run = entry.path().join(PEERS).is_dir();
        if let (true, Ok(Some(_lock))) = (is_a_run, lock(&entry.path())) {
            let _ = remove(&entry.path());
        }
    }
}

/// The process id in the name of a directory; `None` if it is not the directory of a run.
fn pid_of(dir: &Path) -> Option<u32> {
    dir.file_name()?.to_str()?.strip_prefix(NAME)?.parse().ok()
}

/// The directory in memory of the run with this process id.
fn memory_dir(pid: u32) -> PathBuf {
    Path::new(MEMORY).join(format!("{NAME}{pid}"))
}

/// Removes the directories of a run, and the segments that iceoryx2 leaves in memory for later nodes.
fn remove(dir: &Path) -> io::Result<()> {
    if let (Some(pid), Ok(listing)) = (pid_of(dir), fs::read_dir(MEMORY)) {
        let prefix = format!("compare{pid}_");
        let files = listing.flatten();
        for file in files.filter(|file| file.file_name().to_string_lossy().starts_with(&prefix)) {
            let _ = fs::remove_file(file.path());
        }
        let _ = fs::remove_dir_all(memory_dir(pid));
    }
    fs::remove_dir_all(dir)
}

/// The directory for temporary files, in the measuring process and its children. Returns an error in others.
pub(crate) fn dir() -> Result<PathBuf> {
    let dir = std::env::var_os(VARIABLE).ok_or("not part of a run")?;
    Ok(Path::new(&dir).to_path_buf())
}

/// The number of this run, which no other run has.
pub(crate) fn id() -> Result<u32> {
    Ok(pid_of(&dir()?).ok_or("the directory of this run has another name")?)
}

/// The directory for the files of peers.
#[cfg(feature = "peers")]
pub(crate) fn peers() -> Result<PathBuf> {
    Ok(dir()?.join(PEERS))
}

/// The directory in memory, in which cenote keeps its files.
pub(crate) fn memory() -> Result<PathBuf> {
    Ok(memory_dir(id()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_run_directories_have_a_pid() {
        assert_eq!(pid_of(Path::new("/tmp/cenote-compare-17")), Some(17));
        for other in [
            "compare-17",
            "cenote-compare-",
            "cenote-compare-x",
            "cenote-compare-bars-17.toml",
            "17",
        ] {
            assert_eq!(pid_of(&Path::new("/tmp").join(other)), None, "{other}");
        }
    }

    #[test]
    fn directories_of_dead_runs_are_removed_and_locked_ones_stay() {
        let temp = std::env::temp_dir().join(format!("compare-test-{}", pid()));
        let names = ["cenote-compare-1", "cenote-compare-2", "cenote-compare-x"];
        names.iter().for_each(|name| fs::create_dir_all(temp.join(name).join(PEERS)).unwrap());
        let held = lock(&temp.join("cenote-compare-2")).unwrap();
        assert!(held.is_some() && lock(&temp.join("cenote-compare-2")).unwrap().is_none());
        remove_leftovers(&temp);
        let left = names.map(|name| temp.join(name).exists());
        fs::remove_dir_all(&temp).unwrap();
        assert_eq!(left, [false, true, true]);
    }
}
