//! Where a run keeps its things: directories of its own, gone when it ends, however it ends.
//!
//! Each is measured where it keeps its files unless it is told otherwise: cenote in memory, and peers in the
//! directory for temporary files.
//!
//! Whoever is to tidy up must not be killed by what it tidies up after. So a run is two processes: the one
//! that was started, which waits, and the same program again, which measures. Whatever ends the second, the
//! first removes the directories; whatever ends the first ends the second, too, and the next run removes what
//! was left. A directory belongs to whoever holds its lock.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, id as pid};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::process::{WaitOptions, geteuid, set_child_subreaper, wait};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Result;

const VARIABLE: &str = "COMPARE_RUN";

/// What directories are called, before the number of the process.
const NAME: &str = "cenote-compare-";

/// Where a run has a directory for what is to be in memory.
const MEMORY: &str = "/dev/shm";

/// What peers keep. By this, a directory is known to be that of a run.
const PEERS: &str = "peers";

/// How often a directory is made that another run takes for one that was left: it may not be locked yet.
const ATTEMPTS: usize = 16;

/// How long those may take to be gone who die with the process that measures.
const PATIENCE: Duration = Duration::from_secs(2);

/// The directory of this run.
#[derive(Debug)]
pub(crate) struct Run {
    dir: PathBuf,
    _lock: OwnedFd,
}

impl Run {
    /// Makes it, and removes those of runs that were killed.
    pub(crate) fn start() -> Result<Run> {
        remove_leftovers(&std::env::temp_dir());
        let dir = std::env::temp_dir().join(format!("{NAME}{}", pid()));
        for _ in 0..ATTEMPTS {
            fs::create_dir_all(dir.join(PEERS))?;
            if let Some(lock) = lock(&dir)? {
                let run = Run { dir, _lock: lock };
                // What one that was killed left and had the same number.
                let _ = fs::remove_dir_all(in_memory(pid()));
                fs::DirBuilder::new().mode(0o700).create(in_memory(pid()))?;
                return Ok(run);
            }
        }
        Err(format!("{} is somebody else's", dir.display()).into())
    }

    /// Measures, in a process of its own, and tells what that ended with; what a shell would say where a
    /// signal ended it.
    pub(crate) fn measure(&self) -> Result<u8> {
        let mut signals = Signals::new([SIGCHLD, SIGINT, SIGTERM])?;
        // Children of a process that was killed are waited for here.
        set_child_subreaper(Some(rustix::process::getpid()))?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, &self.dir)
            .env("CENOTE_DIR", in_memory(pid()))
            .spawn()?;
        let code = end(&mut child, &mut signals)?;
        await_all();
        Ok(code)
    }
}

/// Waits for the end of a process, or ends it if this one is to end.
fn end(child: &mut Child, signals: &mut Signals) -> Result<u8> {
    loop {
        for signal in signals.wait() {
            if signal != SIGCHLD {
                child.kill()?;
                child.wait()?;
                return Ok(u8::try_from(128 + signal)?);
            }
            if let Some(status) = child.try_wait()? {
                return Ok(code(status)?);
            }
        }
    }
}

fn code(status: ExitStatus) -> std::result::Result<u8, std::num::TryFromIntError> {
    let killed = status.signal().map(|signal| 128 + signal);
    u8::try_from(status.code().or(killed).unwrap_or(2))
}

/// Waits until all are gone who were started by somebody who is gone.
fn await_all() {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            Err(_) => return,
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.dir) {
            eprintln!("{}: {error}", self.dir.display());
        }
    }
}

/// The lock of a directory; `None` if somebody has it, or it is another user's, or gone.
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

/// Removes what runs have left that were killed.
fn remove_leftovers(temp: &Path) {
    let Ok(listing) = fs::read_dir(temp) else { return };
    for entry in listing.flatten().filter(|entry| number(&entry.path()).is_some()) {
        let is_a_run = entry.path().join(PEERS).is_dir();
        if let (true, Ok(Some(_lock))) = (is_a_run, lock(&entry.path())) {
            let _ = remove(&entry.path());
        }
    }
}

/// The process that a directory is called after.
fn number(dir: &Path) -> Option<u32> {
    dir.file_name()?.to_str()?.strip_prefix(NAME)?.parse().ok()
}

/// The directory in memory of the run with this number.
fn in_memory(number: u32) -> PathBuf {
    Path::new(MEMORY).join(format!("{NAME}{number}"))
}

/// Removes the directories of a run, and what iceoryx2 keeps elsewhere for nodes to come.
fn remove(dir: &Path) -> io::Result<()> {
    if let (Some(number), Ok(listing)) = (number(dir), fs::read_dir(MEMORY)) {
        let prefix = format!("compare{number}_");
        let files = listing.flatten();
        for file in files.filter(|file| file.file_name().to_string_lossy().starts_with(&prefix)) {
            let _ = fs::remove_file(file.path());
        }
        let _ = fs::remove_dir_all(in_memory(number));
    }
    fs::remove_dir_all(dir)
}

/// The directory, in the process that measures and in its children.
pub(crate) fn dir() -> Result<PathBuf> {
    let dir = std::env::var_os(VARIABLE).ok_or("not part of a run")?;
    Ok(Path::new(&dir).to_path_buf())
}

/// A number that only this run has.
pub(crate) fn id() -> Result<u32> {
    Ok(number(&dir()?).ok_or("the directory of this run is called otherwise")?)
}

/// Where peers keep their files.
#[cfg(feature = "peers")]
pub(crate) fn peers() -> Result<PathBuf> {
    Ok(dir()?.join(PEERS))
}

/// The directory in memory: where cenote has its files.
pub(crate) fn memory() -> Result<PathBuf> {
    Ok(in_memory(id()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_runs_are_theirs() {
        assert_eq!(number(Path::new("/tmp/cenote-compare-17")), Some(17));
        for other in [
            "compare-17",
            "cenote-compare-",
            "cenote-compare-x",
            "cenote-compare-bars-17.toml",
            "17",
        ] {
            assert_eq!(number(&Path::new("/tmp").join(other)), None, "{other}");
        }
    }

    #[test]
    fn what_the_dead_left_is_removed_and_what_is_locked_stays() {
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
