//! Where this run keeps its things: a directory of its own, gone when it ends.

use std::path::{Path, PathBuf};

use crate::Result;

const VARIABLE: &str = "COMPARE_RUN";

/// The parent's directory.
#[derive(Debug)]
pub(crate) struct Run {
    dir: PathBuf,
}

impl Run {
    /// Makes it, and tells cenote and all children. Called before there is a second thread.
    #[allow(unsafe_code, reason = "sets variables")]
    pub(crate) fn start() -> Result<Run> {
        let dir = std::env::temp_dir().join(format!("compare-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(VARIABLE, &dir) };
        // SAFETY: as above.
        unsafe { std::env::set_var("CENOTE_DIR", dir.join("cenote")) };
        std::fs::create_dir_all(dir.join("cenote"))?;
        Ok(Run { dir })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            eprintln!("{}: {error}", self.dir.display());
        }
        // iceoryx2 keeps a segment for nodes to come.
        let Ok(left) = std::fs::read_dir("/dev/shm") else { return };
        let prefix = format!("compare{}_", std::process::id());
        for file in left.flatten() {
            if file.file_name().to_string_lossy().starts_with(&prefix) {
                _ = std::fs::remove_file(file.path());
            }
        }
    }
}

/// The directory, in the parent and in its children.
pub(crate) fn dir() -> Result<PathBuf> {
    let dir = std::env::var_os(VARIABLE).ok_or("not part of a run")?;
    Ok(Path::new(&dir).to_path_buf())
}

/// A number that only this run has.
#[cfg(feature = "peers")]
pub(crate) fn id() -> Result<String> {
    let dir = dir()?;
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    Ok(name.trim_start_matches("compare-").into())
}
