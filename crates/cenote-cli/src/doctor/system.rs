//! The kernel, and what it lets a process have.

use std::fs;

use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};
use rustix::system::uname;

use super::{Check, State, number};
use crate::unit;

pub(super) fn checks() -> Vec<Check> {
    vec![kernel(), pidfd(), descriptors(), inotify(), locked()]
}

/// Sealing against future writes came with Linux 5.1; the pidfd of a peer with 6.5.
fn kernel() -> Check {
    let release = uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (state, advice) = match version {
        version if version < (5, 1) => (State::Broken, "Linux 5.1 is needed: memory is sealed"),
        version if version < (6, 5) => (
            State::Limited,
            "from Linux 6.5 on a peer is known by more than its number, which could be reused",
        ),
        _ => (State::Works, ""),
    };
    Check::new("kernel", state, format!("Linux {release}")).advise(advice)
}

fn pidfd() -> Check {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => Check::works("pidfd", "the end of a process is noticed at once"),
        Err(error) => Check::new("pidfd", State::Limited, error.to_string()).advise(
            "the end of a process is noticed when its sockets close, which is mostly the same",
        ),
    }
}

/// Two for each process that is attached, and one for each segment while it is sent.
fn descriptors() -> Check {
    let limit = getrlimit(Resource::Nofile).current;
    let found = limit.map_or("without limit".to_owned(), |limit| limit.to_string());
    let state = if limit.is_none_or(|limit| limit >= 1024) { State::Works } else { State::Limited };
    Check::new("file descriptors", state, found).advise("raise it: ulimit -n 4096")
}

fn inotify() -> Check {
    let instances = number("/proc/sys/fs/inotify/max_user_instances").unwrap_or(0);
    let watches = number("/proc/sys/fs/inotify/max_user_watches").unwrap_or(0);
    let enough = instances >= 16 && watches >= 1024;
    let state = if enough { State::Works } else { State::Limited };
    Check::new("inotify", state, format!("{instances} instances, {watches} watches a user")).advise(
        "new publishers are found by looking 20 times a second: sysctl fs.inotify.max_user_instances=128",
    )
}

fn locked() -> Check {
    let limit = getrlimit(Resource::Memlock).current.filter(|_| !may_lock_all());
    let found = limit.map_or("without limit".to_owned(), unit::bytes);
    let enough = limit.is_none_or(|limit| limit >= 64 << 20);
    let state = if enough { State::Works } else { State::Limited };
    Check::new("locked memory", state, found)
        .advise("pools that ask for locked memory go without: ulimit -l unlimited")
}

/// Whether the limit is for others. What a user namespace gives is not asked for.
fn may_lock_all() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    has_capability(&status, CAP_IPC_LOCK) && is_first_namespace(&users)
}

/// Of capabilities(7).
const CAP_IPC_LOCK: u32 = 14;

fn has_capability(status: &str, number: u32) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> number & 1 == 1)
}

/// There every user is who he is: see user_namespaces(7).
fn is_first_namespace(users: &str) -> bool {
    users.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_lock_all_is_found_out() {
        let status =
            |set: &str| format!("Name:\tcenote\nCapEff:\t{set}\nCapBnd:\tffffffffffffffff\n");
        assert!(has_capability(&status("000001ffffffffff"), CAP_IPC_LOCK));
        assert!(has_capability(&status("0000000000004000"), CAP_IPC_LOCK));
        for set in ["0000000000000000", "ffffffffffffbfff", "", "x"] {
            assert!(!has_capability(&status(set), CAP_IPC_LOCK), "{set}");
        }
        assert!(!has_capability("", CAP_IPC_LOCK));
        assert!(is_first_namespace("         0          0 4294967295\n"));
        assert!(!is_first_namespace("0 1000 1\n") && !is_first_namespace(""));
    }
}
