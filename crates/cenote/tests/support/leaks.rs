//! What a process may leak: file descriptors, and mappings of shared memory.

use std::time::{Duration, Instant};

use super::{TIMEOUT, prune_registry};

/// How many descriptors and mappings of shared memory this process has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenResources {
    pub(crate) fds: usize,
    pub(crate) maps: usize,
}

impl OpenResources {
    pub(crate) fn now() -> OpenResources {
        prune_registry();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        OpenResources {
            fds: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            maps: maps.lines().filter(|line| is_shared(line)).count(),
        }
    }

    /// Waits until this process has no more than it had. Panics after [`TIMEOUT`].
    pub(crate) fn assert_none_leaked(&self) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let now = OpenResources::now();
            if now.fds <= self.fds && now.maps <= self.maps {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "leaked: {self:?} before, {now:?} after: {}",
                open_files()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn is_shared(mapping: &str) -> bool {
    mapping.contains("memfd:") || mapping.contains("dmabuf:")
}

fn open_files() -> String {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.map(|link| format!("{} ", link.display())).collect()
}
