//! How much memory this process can still use before the kernel kills a process for want of memory.
//!
//! The result is the minimum of two kinds of numbers: what the machine has left (`MemAvailable`), and what is left
//! under the limit of each memory cgroup that contains the process, as far up as the cgroup file system is visible.
//!
//! - Page cache counts as free, because the kernel drops it before it kills.
//! - Shared memory does not count as free. It is not on the `*_file` lists that are added up here.
//! - Swap does not count: a tensor that is swapped out is too slow to be of use.
//! - `memory.high` does not count: it slows a process down but does not kill it.
//!
//! A limit that cannot be read or parsed is ignored. It is not an error, because a process that may not read its
//! limits must still work.
//!
//! Each measurement reads everything anew, because a process can be moved to another cgroup, and limits can change, at
//! any time. It reads five to ten small files, which takes some 100 to 300 µs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::io::Errno;

use crate::error::Limit;

/// The memory that is left, and the limit under which the least is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AvailableMemory {
    /// Bytes that are left, less the [`margin`].
    pub(crate) available: u64,
    /// The limit that bounds them.
    pub(crate) limit: Limit,
}

impl AvailableMemory {
    /// No limit is known.
    const UNKNOWN: AvailableMemory = AvailableMemory { available: u64::MAX, limit: Limit::Machine };

    fn new(left: u64, total: u64, limit: Limit) -> Self {
        AvailableMemory { available: left.saturating_sub(margin(total)), limit }
    }
}

/// The part of a limit of `total` bytes that is held back: 1/64, and at least 2 MiB.
///
/// Memory costs more than its bytes. For each page the kernel charges the same cgroup for a page table entry (1/512 of
/// the page) and, with shared memory, for a slot in the file's index (about 1/455). 1/64 is three times that. The
/// floor is for stacks and small allocations, which grow meanwhile, and for the kernel's counters, which lag behind by
/// up to 64 pages for each CPU.
fn margin(total: u64) -> u64 {
    const FLOOR: u64 = 2 << 20;
    (total / 64).max(FLOOR)
}

/// Measures the memory that is left.
pub(crate) fn available_memory() -> AvailableMemory {
    keep_spare();
    let meminfo = read("/proc/meminfo");
    let cgroup = read("/proc/self/cgroup");
    let mountinfo = read("/proc/self/mountinfo");
    let total = kilobytes(&meminfo, "MemTotal").unwrap_or(u64::MAX);
    let groups = VERSIONS.iter().flat_map(|version| {
        directories(&cgroup, &mountinfo, version)
            .into_iter()
            .filter_map(|dir| group_at(&dir, version, total))
    });
    machine(&meminfo)
        .into_iter()
        .chain(groups)
        .min_by_key(|memory| memory.available)
        .unwrap_or(AvailableMemory::UNKNOWN)
}

/// Bytes of private memory that this process has touched; `None` if the kernel does not say.
pub(crate) fn anonymous() -> Option<u64> {
    kilobytes(&read("/proc/self/status"), "RssAnon")
}

/// The text of a file; empty if it cannot be read.
fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    let bytes = fs::read(path).or_else(|error| match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE) => read_without_descriptors(path),
        _ => Err(error),
    });
    // The name of a mount point may have any bytes. One that is not UTF-8 must not hide all the others.
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// A descriptor that is closed for a moment when no other is left. Without it, a process that has run out of
/// descriptors could not read its limits and would assume none.
static SPARE: Mutex<Option<File>> = Mutex::new(None);

/// Opens the spare descriptor, once.
fn keep_spare() {
    // In a forked child the lock may stay taken for ever. Such a child has no spare descriptor.
    if let Ok(mut spare) = SPARE.try_lock()
        && spare.is_none()
    {
        *spare = File::open("/dev/null").ok();
    }
}

fn read_without_descriptors(path: &Path) -> io::Result<Vec<u8>> {
    let mut spare = SPARE.try_lock().map_err(|_| io::ErrorKind::WouldBlock)?;
    *spare = None;
    let bytes = fs::read(path);
    *spare = File::open("/dev/null").ok();
    bytes
}

fn machine(meminfo: &str) -> Option<AvailableMemory> {
    let left = kilobytes(meminfo, "MemAvailable")?;
    let total = kilobytes(meminfo, "MemTotal")?;
    Some(AvailableMemory::new(left, total, Limit::Machine))
}

/// The value of a line such as `MemAvailable:   24330000 kB`, in bytes.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The names that one version of cgroups uses.
struct Version {
    /// The controller's name in `/proc/self/cgroup`.
    controller: &'static str,
    fs_type: &'static str,
    /// An option that the mount must have.
    mount_option: Option<&'static str>,
    limit: &'static str,
    usage: &'static str,
    /// The lines of `memory.stat` that count page cache, of the group and of all groups in it.
    page_cache: [&'static str; 2],
}

/// Both are read on every machine: if version 1 has the memory controller, the files of version 2 are missing, and
/// the other way round.
const VERSIONS: [Version; 2] = [V1, V2];

const V1: Version = Version {
    controller: "memory",
    fs_type: "cgroup",
    mount_option: Some("memory"),
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    page_cache: ["total_inactive_file", "total_active_file"],
};

const V2: Version = Version {
    controller: "",
    fs_type: "cgroup2",
    mount_option: None,
    limit: "memory.max",
    usage: "memory.current",
    page_cache: ["inactive_file", "active_file"],
};

/// The memory left in the group at `dir`, if the group has a limit below the machine's `total`.
fn group_at(dir: &Path, version: &Version, total: u64) -> Option<AvailableMemory> {
    let limit = limit(&read(dir.join(version.limit)), total)?;
    let usage = read(dir.join(version.usage));
    let stat = read(dir.join("memory.stat"));
    group(limit, &usage, &stat, version)
}

/// Parses a limit. `None` if it is not below the machine's `total`: version 2 says `max` for no limit, version 1 a huge
/// number. The counters of such a group are not read; they are the slowest files.
fn limit(text: &str, total: u64) -> Option<u64> {
    text.trim().parse().ok().filter(|limit| *limit < total)
}

fn group(limit: u64, usage: &str, stat: &str, version: &Version) -> Option<AvailableMemory> {
    let usage = usage.trim().parse::<u64>().ok()?;
    let pinned = usage.saturating_sub(page_cache(stat, version));
    Some(AvailableMemory::new(limit.saturating_sub(pinned), limit, Limit::Cgroup))
}

fn page_cache(stat: &str, version: &Version) -> u64 {
    stat.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(key, _)| version.page_cache.contains(key))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

/// The directories of the process's group and of all groups that contain it, innermost first.
fn directories(cgroup: &str, mountinfo: &str, version: &Version) -> Vec<PathBuf> {
    let Some(path) = membership(cgroup, version) else { return Vec::new() };
    let mounts: Vec<Mount> =
        mountinfo.lines().filter_map(|line| Mount::parse(line, version)).collect();
    let inside = mounts.iter().find_map(|mount| Some((mount, below(path, &mount.root)?)));
    // No mount shows the group if it lies outside the cgroup namespace. Then the topmost visible group is the best
    // that is known.
    let clamped = || mounts.first().map(|mount| (mount, ""));
    match inside.or_else(clamped) {
        Some((mount, below)) => mount.directories(below),
        None => Vec::new(),
    }
}

/// The path of the process's group: the third field of `4:memory:/path`, or of `0::/path`.
fn membership<'a>(cgroup: &'a str, version: &Version) -> Option<&'a str> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let mut controllers = fields.next()?.split(',');
        let path = fields.next().filter(|path| path.starts_with('/'))?;
        controllers.any(|name| name == version.controller).then_some(path)
    })
}

/// A mount of the cgroup file system, or of a part of it.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The group that the mount point shows.
    root: String,
    point: PathBuf,
}

impl Mount {
    /// Reads a line such as `35 31 0:32 /root /point rw,relatime shared:9 - cgroup cgroup rw,memory`.
    fn parse(line: &str, version: &Version) -> Option<Mount> {
        let (place, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let fs_type = file_system.next()?;
        let mut options = file_system.nth(1).unwrap_or_default().split(',');
        let has_option =
            version.mount_option.is_none_or(|wanted| options.any(|option| option == wanted));
        if fs_type != version.fs_type || !has_option {
            return None;
        }
        let mut place = place.split(' ').skip(3);
        let root = unescape(place.next()?);
        let point = unescape(place.next()?).into();
        Some(Mount { root, point })
    }

    /// The directory of the group `below` the root, and those above it up to the mount point.
    fn directories(&self, below: &str) -> Vec<PathBuf> {
        let own = self.point.join(below);
        own.ancestors().take_while(|dir| dir.starts_with(&self.point)).map(Into::into).collect()
    }
}

/// The part of `path` below `root`; `None` if it is not below.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    let inside = rest.is_empty() || rest.starts_with('/');
    let climbs = rest.split('/').any(|name| name == "..");
    (inside && !climbs).then(|| rest.trim_matches('/'))
}

/// Undoes the escapes of mountinfo: the kernel writes a blank as `\040`.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    const HYBRID_CGROUP: &str = "9:name=systemd:/\n4:memory:/jobs/a\n1:cpu,cpuacct:/\n0::/user\n";
    const HYBRID_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 master:2 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    const V2_MOUNT: &str =
        "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    fn paths(cgroup: &str, mounts: &str, version: &Version) -> Vec<String> {
        let dirs = directories(cgroup, mounts, version);
        dirs.iter().map(|dir| dir.display().to_string().trim_end_matches('/').into()).collect()
    }

    #[test]
    fn both_hierarchies_of_a_hybrid_setup_are_read() {
        let root = "/sys/fs/cgroup/memory";
        assert_eq!(
            paths(HYBRID_CGROUP, HYBRID_MOUNTS, &V1),
            [format!("{root}/jobs/a"), format!("{root}/jobs"), root.into()]
        );
        let root = "/sys/fs/cgroup/unified";
        assert_eq!(paths(HYBRID_CGROUP, HYBRID_MOUNTS, &V2), [format!("{root}/user"), root.into()]);
    }

    #[test]
    fn all_groups_that_contain_the_process_are_read() {
        let dirs = paths("0::/a.slice/b:c.scope\n", V2_MOUNT, &V2);
        let root = "/sys/fs/cgroup";
        assert_eq!(
            dirs,
            [format!("{root}/a.slice/b:c.scope"), format!("{root}/a.slice"), root.into()]
        );
        assert!(paths("0::/a\n", V2_MOUNT, &V1).is_empty());
    }

    #[test]
    fn a_namespaced_container_sees_itself_as_the_root() {
        assert_eq!(paths("0::/\n", V2_MOUNT, &V2), ["/sys/fs/cgroup"]);
    }

    #[test]
    fn a_bind_mounted_container_is_found_relative_to_the_mounts_root() {
        let mounts = "1 2 0:3 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let point = "/sys/fs/cgroup/memory";
        assert_eq!(paths("4:memory:/docker/abc\n", mounts, &V1), [point]);
        assert_eq!(
            paths("4:memory:/docker/abc/in\n", mounts, &V1),
            [format!("{point}/in"), point.into()]
        );
        // A prefix, but not by whole names: another group.
        assert_eq!(paths("4:memory:/docker/abcdef\n", mounts, &V1), [point]);
    }

    #[test]
    fn the_mount_that_shows_the_group_is_preferred() {
        let mounts = format!("1 2 0:3 /other /mnt rw - cgroup2 cgroup2 rw\n{V2_MOUNT}");
        assert_eq!(paths("0::/a\n", &mounts, &V2), ["/sys/fs/cgroup/a", "/sys/fs/cgroup"]);
    }

    #[test]
    fn a_group_outside_of_the_namespace_is_clamped_to_the_mount() {
        assert_eq!(paths("0::/../b\n", V2_MOUNT, &V2), ["/sys/fs/cgroup"]);
        assert_eq!(paths("0::/a/../../b\n", V2_MOUNT, &V2), ["/sys/fs/cgroup"]);
        let outer = "1 2 0:3 /.. /mnt rw - cgroup2 cgroup2 rw\n";
        assert_eq!(paths("0::/../b\n", outer, &V2), ["/mnt/b", "/mnt"]);
        assert_eq!(paths("0::/\n", outer, &V2), ["/mnt"]);
    }

    #[test]
    fn text_that_cannot_be_parsed_is_no_limit() {
        for garbage in
            ["", "\n\n", ":", "::", "0:", "4:memory", "- - -", " - cgroup2", "\0\u{fffd}"]
        {
            for version in &VERSIONS {
                assert!(directories(garbage, HYBRID_MOUNTS, version).is_empty(), "{garbage:?}");
                assert!(directories(HYBRID_CGROUP, garbage, version).is_empty(), "{garbage:?}");
                assert_eq!(group(1, garbage, "", version), None);
            }
            assert_eq!(machine(garbage), None);
            assert_eq!(limit(garbage, u64::MAX), None);
        }
        assert_eq!(machine("MemTotal: 99999999999999999999 kB\nMemAvailable: 1 kB\n"), None);
        assert_eq!(machine("MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n"), None);
    }

    #[test]
    fn mount_points_are_unescaped() {
        assert_eq!(unescape(r"/a\040b\134c"), r"/a b\c");
        assert_eq!(unescape(r"/a\04"), r"/a\04");
        assert_eq!(unescape(r"\999\é€"), r"\999\é€");
        let mount = r"1 2 0:3 / /my\040groups rw - cgroup2 cgroup2 rw";
        assert_eq!(paths("0::/a\n", mount, &V2), ["/my groups/a", "/my groups"]);
    }

    #[test]
    fn page_cache_counts_as_free_and_shmem_does_not() {
        let stat = "anon 1\nshmem 9999999\ninactive_file 3145728\nactive_file 1048576\n";
        let found = group(64 * MIB, "33554432\n", stat, &V2).unwrap();
        assert_eq!(
            found,
            AvailableMemory { available: (64 - 32 + 4 - 2) * MIB, limit: Limit::Cgroup }
        );
    }

    #[test]
    fn version_1_counts_the_groups_in_a_group() {
        let stat = "inactive_file 7\ntotal_inactive_file 2097152\ntotal_active_file 1048576\n";
        let found = group(64 * MIB, "33554432\n", stat, &V1).unwrap();
        assert_eq!(found.available, (64 - 32 + 3 - 2) * MIB);
    }

    #[test]
    fn a_group_over_its_limit_has_nothing_left() {
        assert_eq!(group(MIB, "33554432", "", &V2).unwrap().available, 0);
    }

    #[test]
    fn only_limits_below_the_machines_memory_bind() {
        assert_eq!(limit("67108864\n", 1 << 30), Some(64 * MIB));
        assert_eq!(limit("max\n", 1 << 30), None);
        assert_eq!(limit("9223372036854771712\n", 1 << 30), None);
    }

    #[test]
    fn the_available_memory_of_the_machine_is_parsed() {
        let meminfo = "MemTotal:       1048576 kB\nMemFree:  5 kB\nMemAvailable:   524288 kB\n";
        let found = machine(meminfo).unwrap();
        assert_eq!(found, AvailableMemory { available: (512 - 16) * MIB, limit: Limit::Machine });
    }

    #[test]
    fn this_machine_can_be_measured() {
        let found = available_memory();
        assert!(found.available < 1 << 50, "{found:?}");
        assert!(anonymous().is_some_and(|bytes| bytes > 0));
    }
}
