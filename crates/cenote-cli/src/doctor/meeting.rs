//! Where processes meet, and whether one can meet another there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cenote::{DIR_ENV, DType, TensorPool, TensorPoolConfig, namespace_dir};
use rustix::fs::statvfs;

use super::{Check, State};
use crate::namespace;
use crate::unit;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![shm()];
    match namespace_dir() {
        Ok(dir) => {
            let found = directory(&dir);
            let _made = Made::from_here_on(&dir);
            checks.extend([found, attaching()]);
        }
        Err(error) => checks.push(Check::new("directory", State::Broken, error.to_string())),
    }
    checks
}

fn shm() -> Check {
    match statvfs("/dev/shm") {
        Ok(found) => {
            let free = unit::bytes(found.f_bavail.saturating_mul(found.f_frsize));
            Check::works("/dev/shm", format!("{free} free; only sockets are put there"))
        }
        Err(error) => Check::new("/dev/shm", State::Missing, error.to_string())
            .advise("name another directory: export CENOTE_DIR=/run/user/1000/cenote"),
    }
}

fn directory(dir: &Path) -> Check {
    let name = "directory";
    let shown = dir.display();
    let Ok(found) = fs::metadata(dir) else {
        return Check::works(name, format!("{shown}, made when it is first needed"));
    };
    let mode = found.permissions().mode() & 0o7777;
    let chosen = if std::env::var_os(DIR_ENV).is_some() { ", from CENOTE_DIR" } else { "" };
    Check::works(name, format!("{shown}, of user {}, mode {mode:o}{chosen}", found.uid()))
}

/// The directories on the way to a pool that were not there before. They are removed in the end, the
/// innermost first, unless somebody has put something there meanwhile.
#[derive(Debug)]
struct Made(Vec<PathBuf>);

impl Made {
    /// `namespace` is in the directory that processes meet in, and pools are in a directory in it.
    fn from_here_on(namespace: &Path) -> Made {
        let pools = namespace.join("pools");
        let way = pools.ancestors().take(3).map(Path::to_path_buf);
        Made(way.take_while(|dir| matches!(dir.try_exists(), Ok(false))).collect())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Whoever is about to put something into a directory has its lock.
        let remove = |dir: &PathBuf| {
            let lock = namespace::lock(dir).ok().flatten();
            lock.is_some_and(|_lock| fs::remove_dir(dir).is_ok())
        };
        let _left = self.0.iter().find(|dir| !remove(dir));
    }
}

/// Makes a pool, attaches to it as anybody else would, and sees a tensor through it.
fn attaching() -> Check {
    let tried = || {
        let name = format!("cenote-doctor-{}", std::process::id());
        let pool = TensorPool::new(name.as_str(), TensorPoolConfig::small())?;
        let mut tensor = pool.alloc(&[64], DType::U8)?;
        tensor.map_mut()?.as_mut_slice::<u8>()?.fill(7);
        let seen = TensorPool::open(name.as_str())?.import(&tensor.descriptor()?)?;
        Ok(seen.map()?.as_slice::<u8>()? == [7; 64])
    };
    let tried: cenote::Result<bool> = tried();
    let state = if matches!(tried, Ok(true)) { State::Works } else { State::Broken };
    let found = match tried {
        Ok(true) => "a tensor went through a pool, without a copy".to_owned(),
        Ok(false) => "a tensor came back with other bytes".to_owned(),
        Err(error) => error.to_string(),
    };
    Check::new("attaching", state, found).advise(
        "the directory must be this user's and on a file system that has sockets: see the guide on \
         containers and permissions",
    )
}
