//! Directories of sockets: where the processes of a test find each other.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// A directory of sockets for one test program. It is removed when dropped.
pub(crate) struct SocketDir(pub(crate) PathBuf);

impl SocketDir {
    pub(crate) fn new(what: &str) -> Self {
        let dir = std::env::temp_dir();
        let name = |id: &str| dir.join(format!("cenote-{what}-{id}"));
        for id in SocketDir::left_behind(&dir, &format!("cenote-{what}-")) {
            let _ = std::fs::remove_dir_all(name(&id));
        }
        let dir = name(&std::process::id().to_string());
        std::fs::create_dir_all(&dir).unwrap();
        SocketDir(dir)
    }

    /// The process ids of killed test programs, which could not remove their directories.
    fn left_behind(dir: &Path, prefix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let ids = names.filter_map(|name| name.strip_prefix(prefix).map(str::to_owned));
        let ended =
            |id: &String| id.parse::<u32>().is_ok() && !Path::new("/proc").join(id).exists();
        ids.filter(ended).collect()
    }

    /// Makes this the socket directory of this process and its children. Call it before any other
    /// thread runs.
    #[allow(unsafe_code, reason = "changes the environment")]
    pub(crate) fn use_here(&self) {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(cenote::DIR_ENV, &self.0) };
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        // The service thread of a live pool makes the directory again when it notices.
        for _ in 0..100 {
            let _ = std::fs::remove_dir_all(&self.0);
            std::thread::sleep(Duration::from_millis(10));
            if !self.0.exists() {
                return;
            }
        }
    }
}

/// The socket directory of this process.
pub(crate) fn socket_dir() -> PathBuf {
    PathBuf::from(std::env::var_os(cenote::DIR_ENV).unwrap())
}

/// The directory with the sockets of pools.
pub(crate) fn pools_dir() -> PathBuf {
    socket_dir().join("default/pools")
}

/// The directory with the sockets of a topic's publishers.
pub(crate) fn topic_dir(name: &str) -> PathBuf {
    socket_dir().join("default/topics").join(name)
}
