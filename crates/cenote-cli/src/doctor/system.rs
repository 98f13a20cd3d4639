//! The kernel, and what it lets a process have.

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
    let limit = getrlimit(Resource::Memlock).current;
    let found = limit.map_or("without limit".to_owned(), unit::bytes);
    let enough = limit.is_none_or(|limit| limit >= 64 << 20);
    let state = if enough { State::Works } else { State::Limited };
    Check::new("locked memory", state, found)
        .advise("pools that ask for locked memory go without: ulimit -l unlimited")
}
