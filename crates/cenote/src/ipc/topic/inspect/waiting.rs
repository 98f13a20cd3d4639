//! Which processes wait for a publisher.
//!
//! A subscriber announces itself to publishers only. Without a publisher no process is notified. But it watches the topic's
//! directory (`ipc/topic/subscriber/discovery.rs`), and the kernel shows which directories a process watches
//! (proc_pid_fdinfo(5)). So a subscriber writes nothing, and leaves nothing behind when it is killed.
//!
//! # Why no lock file
//! A lock on the directory itself is taken: discovery needs it exclusively. A locked file in the directory would keep the directory
//! from being removed when it is empty, would remain after a kill, and must be readable by other users.
//!
//! # Limits
//! - Another program that watches the directory, such as a file manager, is taken for a subscriber.
//! - The numbers that the kernel shows must be those of stat(2). On btrfs and overlayfs they are not, and no process is
//!   found. On tmpfs, the default, they are.

use std::fs;
use std::path::Path;

use crate::ipc::discovery::socket_dir::SocketDir;
use crate::ipc::topic::inspect::info::SubscriberInfo;
use crate::sys::socket::peer;

/// A directory, as the kernel identifies it in the list of a process's watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchedDir {
    ino: u64,
    dev: u64,
}

impl WatchedDir {
    pub(crate) fn of(dir: &SocketDir) -> Option<WatchedDir> {
        let stat = dir.stat().ok()?;
        let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        // The kernel's internal encoding of a device number.
        Some(WatchedDir { ino: stat.st_ino, dev: u64::from(major) << 20 | u64::from(minor) })
    }

    /// Parses a line such as `inotify wd:1 ino:2a sdev:1b mask:3c0 …`, whose numbers are hexadecimal.
    fn parse(line: &str) -> Option<WatchedDir> {
        let mut words = line.strip_prefix("inotify ")?.split(' ');
        let mut word = |name: &str| {
            let word = words.find_map(|word| word.strip_prefix(name))?;
            u64::from_str_radix(word, 16).ok()
        };
        Some(WatchedDir { ino: word("ino:")?, dev: word("sdev:")? })
    }
}

/// The processes that watch one of these directories, each with the number of the directory.
pub(crate) fn find(wanted: &[(usize, WatchedDir)]) -> Vec<(usize, SubscriberInfo)> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.flat_map(|pid| {
        let watched = watched_by(pid);
        let here = wanted.iter().filter(move |(_, dir)| watched.contains(dir));
        here.map(move |(at, _)| (*at, subscriber(pid)))
    })
    .collect()
}

fn subscriber(pid: i32) -> SubscriberInfo {
    SubscriberInfo { pid, program: peer::program(pid), behind: 0 }
}

/// The directories that a process watches. Empty if this user may not read its `/proc` entry.
fn watched_by(pid: i32) -> Vec<WatchedDir> {
    let process = Path::new("/proc").join(pid.to_string());
    let fds = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let inotify = fds.filter(|fd| {
        fs::read_link(fd.path()).is_ok_and(|target| target == Path::new("anon_inode:inotify"))
    });
    let infos = inotify
        .filter_map(|fd| fs::read_to_string(process.join("fdinfo").join(fd.file_name())).ok());
    infos.flat_map(|text| text.lines().filter_map(WatchedDir::parse).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_parsed() {
        let line = "inotify wd:1 ino:9e7e sdev:800013 mask:3c0 ignored_mask:0 fhandle-bytes:8";
        assert_eq!(WatchedDir::parse(line), Some(WatchedDir { ino: 0x9e7e, dev: 0x80_0013 }));
        for line in ["", "pos:\t0", "inotify", "inotify wd:1", "inotify wd:1 ino:x sdev:1"] {
            assert_eq!(WatchedDir::parse(line), None, "{line}");
        }
    }
}
