//! The socket directory, and whether a process can attach to a pool through it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cenote::{DIR_ENV, DType, TensorPool, TensorPoolConfig, namespace_dir};
use rustix::fs::statvfs;

use super::check::{Check, CheckState};
use crate::output::unit;
use crate::process::temporary_namespace;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![shm()];
    match namespace_dir() {
        Ok(dir) => {
            let found = directory(&dir);
            let _created = CreatedDirs::from_now(&dir);
            checks.extend([found, attaching()]);
        }
        Err(error) => checks.push(Check::new("directory", CheckState::Broken, error.to_string())),
    }
    checks
}

fn shm() -> Check {
    match statvfs("/dev/shm") {
        Ok(found) => {
            let free = unit::bytes(found.f_bavail.saturating_mul(found.f_frsize));
            Check::works("/dev/shm", format!("{free} free; it holds only sockets"))
        }
        Err(error) => Check::new("/dev/shm", CheckState::Missing, error.to_string())
            .advise("set another directory: export CENOTE_DIR=/run/user/1000/cenote"),
    }
}

fn directory(dir: &Path) -> Check {
    let name = "directory";
    let shown = dir.display();
    let Ok(found) = fs::metadata(dir) else {
        return Check::works(name, format!("{shown}, created when it is first needed"));
    };
    let mode = found.permissions().mode() & 0o7777;
    let chosen = if std::env::var_os(DIR_ENV).is_some() { ", from CENOTE_DIR" } else { "" };
    Check::works(name, format!("{shown}, owned by user {}, mode {mode:o}{chosen}", found.uid()))
}

/// The directories that this command creates for its pool. Dropping this removes them, the innermost first, unless
/// another process has put something there.
#[derive(Debug)]
struct CreatedDirs(Vec<PathBuf>);

impl CreatedDirs {
    /// The directories that do not exist yet: `<socket dir>/<namespace>/pools` and its two parents.
    fn from_now(namespace: &Path) -> CreatedDirs {
        let pools = namespace.join("pools");
        let path = pools.ancestors().take(3).map(Path::to_path_buf);
        CreatedDirs(path.take_while(|dir| matches!(dir.try_exists(), Ok(false))).collect())
    }
}

impl Drop for CreatedDirs {
    fn drop(&mut self) {
        // A process that is about to create something in a directory holds its lock.
        let remove = |dir: &PathBuf| {
            let lock = temporary_namespace::lock_dir(dir).ok().flatten();
            lock.is_some_and(|_lock| fs::remove_dir(dir).is_ok())
        };
        let _not_removed = self.0.iter().find(|dir| !remove(dir));
    }
}

/// Creates a pool, attaches to it as another process would, and reads a tensor through it.
fn attaching() -> Check {
    let attempt = || {
        let name = format!("cenote-doctor-{}", std::process::id());
        let pool = TensorPool::new(name.as_str(), TensorPoolConfig::small())?;
        let mut tensor = pool.alloc(&[64], DType::U8)?;
        tensor.map_mut()?.as_mut_slice::<u8>()?.fill(7);
        let seen = TensorPool::open(name.as_str())?.import(&tensor.descriptor()?)?;
        Ok(seen.map()?.as_slice::<u8>()? == [7; 64])
    };
    let result: cenote::Result<bool> = attempt();
    let state = if matches!(result, Ok(true)) { CheckState::Works } else { CheckState::Broken };
    let found = match result {
        Ok(true) => "a tensor went through a pool without a copy".to_owned(),
        Ok(false) => "a tensor arrived with wrong bytes".to_owned(),
        Err(error) => error.to_string(),
    };
    Check::new("attaching", state, found).advise(
        "the directory must belong to this user, on a file system that supports sockets: see the guide on \
         containers and permissions",
    )
}
