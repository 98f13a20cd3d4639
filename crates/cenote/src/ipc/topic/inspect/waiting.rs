//! Who waits for a publisher to come.
//!
//! Subscribers say so to publishers, and where there is none, to nobody. But they have their topic's directory
//! watched (`ipc/topic/subscriber/discovery.rs`), and the kernel tells of every process that this user may look into what it has
//! watched (proc_pid_fdinfo(5)). So nothing is written anywhere, and nothing is left behind.
//!
//! It has its limits. Whoever else has the directory watched, such as a file manager, is taken for one who
//! waits. And where the kernel's numbers of a directory are not those that stat(2) gives, as on btrfs and
//! overlayfs, nobody is found; on tmpfs, which directories are on unless CENOTE_DIR says otherwise, they are.

use std::fs;
use std::path::Path;

use crate::ipc::discovery::socket_dir::SocketDir;
use crate::ipc::topic::inspect::listing::SubscriberInfo;
use crate::sys::socket::peer;

/// A directory, as the kernel tells that it is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    ino: u64,
    dev: u64,
}

impl Mark {
    pub(crate) fn of(place: &SocketDir) -> Option<Mark> {
        let stat = place.stat().ok()?;
        let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        // The kernel's own way to put them together.
        Some(Mark { ino: stat.st_ino, dev: u64::from(major) << 20 | u64::from(minor) })
    }

    /// `inotify wd:1 ino:2a sdev:1b mask:3c0 …`, in hexadecimal.
    fn parse(line: &str) -> Option<Mark> {
        let mut words = line.strip_prefix("inotify ")?.split(' ');
        let mut word = |name: &str| {
            let word = words.find_map(|word| word.strip_prefix(name))?;
            u64::from_str_radix(word, 16).ok()
        };
        Some(Mark { ino: word("ino:")?, dev: word("sdev:")? })
    }
}

/// Everybody who has one of these directories watched, and which.
pub(crate) fn find(wanted: &[(usize, Mark)]) -> Vec<(usize, SubscriberInfo)> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.flat_map(|pid| {
        let marks = watched(pid);
        let here = wanted.iter().filter(move |(_, mark)| marks.contains(mark));
        here.map(move |(at, _)| (*at, subscriber(pid)))
    })
    .collect()
}

fn subscriber(pid: i32) -> SubscriberInfo {
    SubscriberInfo { pid, program: peer::program(pid), behind: 0 }
}

/// What a process has watched; nothing if that is not for us to see.
fn watched(pid: i32) -> Vec<Mark> {
    let process = Path::new("/proc").join(pid.to_string());
    let fds = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let inotify = fds.filter(|fd| {
        fs::read_link(fd.path()).is_ok_and(|target| target == Path::new("anon_inode:inotify"))
    });
    let told = inotify
        .filter_map(|fd| fs::read_to_string(process.join("fdinfo").join(fd.file_name())).ok());
    told.flat_map(|text| text.lines().filter_map(Mark::parse).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        let line = "inotify wd:1 ino:9e7e sdev:800013 mask:3c0 ignored_mask:0 fhandle-bytes:8";
        assert_eq!(Mark::parse(line), Some(Mark { ino: 0x9e7e, dev: 0x80_0013 }));
        for line in ["", "pos:\t0", "inotify", "inotify wd:1", "inotify wd:1 ino:x sdev:1"] {
            assert_eq!(Mark::parse(line), None, "{line}");
        }
    }
}
