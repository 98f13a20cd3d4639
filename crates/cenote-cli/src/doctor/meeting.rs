//! Where processes meet, and whether one can meet another there.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use cenote::{DIR_ENV, DType, TensorPool, TensorPoolConfig, namespace_dir};
use rustix::fs::statvfs;

use super::{Check, State};
use crate::unit;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![shm()];
    match namespace_dir() {
        Ok(dir) => checks.extend([directory(&dir), attaching()]),
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
    let Ok(found) = std::fs::metadata(dir) else {
        return Check::works(name, format!("{shown}, made when it is first needed"));
    };
    let mode = found.permissions().mode() & 0o7777;
    let chosen = if std::env::var_os(DIR_ENV).is_some() { ", from CENOTE_DIR" } else { "" };
    Check::works(name, format!("{shown}, of user {}, mode {mode:o}{chosen}", found.uid()))
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
