//! The kernel, and its limits for a process.

use std::fs;

use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};
use rustix::system::uname;

use super::check::{Check, CheckState};
use crate::output::unit;

pub(super) fn checks() -> Vec<Check> {
    vec![kernel(), pidfd(), descriptors(), inotify(), locked()]
}

/// Linux 5.1 introduced sealing against future writes; 6.5 the pidfd of a socket's peer.
fn kernel() -> Check {
    let release = uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (state, advice) = match version {
        version if version < (5, 1) => (CheckState::Broken, "needs Linux 5.1 for sealed memory"),
        version if version < (6, 5) => (
            CheckState::Limited,
            "before Linux 6.5 a peer is identified by its pid alone, which the kernel may reuse",
        ),
        _ => (CheckState::Works, ""),
    };
    Check::new("kernel", state, format!("Linux {release}")).advise(advice)
}

fn pidfd() -> Check {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => Check::works("pidfd", "the end of a process is detected at once"),
        Err(error) => Check::new("pidfd", CheckState::Limited, error.to_string()).advise(
            "the end of a process is detected when its sockets close, which is usually at the same time",
        ),
    }
}

/// An owner uses two for each attached process, and one for each segment while it sends it.
fn descriptors() -> Check {
    let limit = getrlimit(Resource::Nofile).current;
    let found = limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let state = if limit.is_none_or(|limit| limit >= 1024) {
        CheckState::Works
    } else {
        CheckState::Limited
    };
    Check::new("file descriptors", state, found).advise("raise it: ulimit -n 4096")
}

fn inotify() -> Check {
    let instances = number("/proc/sys/fs/inotify/max_user_instances").unwrap_or(0);
    let watches = number("/proc/sys/fs/inotify/max_user_watches").unwrap_or(0);
    let enough = instances >= 16 && watches >= 1024;
    let state = if enough { CheckState::Works } else { CheckState::Limited };
    Check::new("inotify", state, format!("{instances} instances and {watches} watches per user")).advise(
        "new publishers are found by polling 20 times a second: sysctl fs.inotify.max_user_instances=128",
    )
}

/// Reads a number from a file of /proc.
fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn locked() -> Check {
    let limit = getrlimit(Resource::Memlock).current.filter(|_| !may_lock_all());
    let found = limit.map_or("unlimited".to_owned(), unit::bytes);
    let enough = limit.is_none_or(|limit| limit >= 64 << 20);
    let state = if enough { CheckState::Works } else { CheckState::Limited };
    Check::new("locked memory", state, found)
        .advise("pools that request locked memory get unlocked memory: ulimit -l unlimited")
}

/// Whether the limit does not apply to this process. A capability inside a user namespace does not count.
fn may_lock_all() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    has_capability(&status, CAP_IPC_LOCK) && is_initial_namespace(&users)
}

/// See capabilities(7).
const CAP_IPC_LOCK: u32 = 14;

fn has_capability(status: &str, number: u32) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> number & 1 == 1)
}

/// Whether the map of user ids is that of the initial user namespace: see user_namespaces(7).
fn is_initial_namespace(users: &str) -> bool {
    users.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_and_the_user_namespace_are_parsed() {
        let status =
            |set: &str| format!("Name:\tcenote\nCapEff:\t{set}\nCapBnd:\tffffffffffffffff\n");
        assert!(has_capability(&status("000001ffffffffff"), CAP_IPC_LOCK));
        assert!(has_capability(&status("0000000000004000"), CAP_IPC_LOCK));
        for set in ["0000000000000000", "ffffffffffffbfff", "", "x"] {
            assert!(!has_capability(&status(set), CAP_IPC_LOCK), "{set}");
        }
        assert!(!has_capability("", CAP_IPC_LOCK));
        assert!(is_initial_namespace("         0          0 4294967295\n"));
        assert!(!is_initial_namespace("0 1000 1\n") && !is_initial_namespace(""));
    }
}
