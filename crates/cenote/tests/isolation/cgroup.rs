//! A pool in a cgroup of 64 MiB: growing beyond the limit returns an error, and the kernel kills no process.

use std::path::{Path, PathBuf};

use super::{Test, command, directory};
use crate::support::peer::Peer;

pub(crate) const TESTS: &[Test] = &[
    ("a_pool_that_outgrows_its_cgroup_gets_an_error", outgrows),
    ("a_pool_that_outgrows_its_cgroup_waits_and_makes_room", waits),
];

const LIMIT: &str = "67108864";

/// A memory cgroup, removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Cgroup {
        let name = format!("cenote-isolation-{}-{name}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (parent, file) = if v1.join("memory.limit_in_bytes").exists() {
            (v1, "memory.limit_in_bytes")
        } else {
            let v2 = Path::new("/sys/fs/cgroup");
            std::fs::write(v2.join("cgroup.subtree_control"), "+memory").unwrap();
            (v2, "memory.max")
        };
        let group = Cgroup(parent.join(name));
        std::fs::create_dir(&group.0).unwrap();
        std::fs::write(group.0.join(file), LIMIT).unwrap();
        group
    }

    fn add(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        eprintln!("could not remove {}", self.0.display());
    }
}

fn outgrows() {
    let cgroup = Cgroup::new("error");
    let dir = directory("cgroup", 0o700);
    let mut owner = Peer::run(&mut command(&dir));
    cgroup.add(owner.pid());
    assert_eq!(owner.request("slots big 1000"), "ok");
    for _ in 0..3 {
        let answer = owner.request("fill 1000000");
        let (count, why) = answer.split_once(' ').unwrap();
        assert!(why.contains("control group"), "{answer}");
        assert!(count.parse::<usize>().unwrap() >= 35, "{answer}");
        assert_eq!(owner.request("drop"), "ok");
    }
    // The tables of a pool's slots are memory, too.
    let answer = owner.request("slots many 1048576");
    assert!(answer.contains("control group"), "{answer}");
    let tensor = owner.request("alloc 1000000 4");
    let mut reader = Peer::run(&mut command(&dir));
    cgroup.add(reader.pid());
    assert_eq!(reader.request(&format!("import {tensor}")), "ok");
    assert_eq!(reader.request("check 4"), "true");
    reader.finish();
    owner.finish();
}

/// The configured size of the pool is larger than the limit.
fn waits() {
    let cgroup = Cgroup::new("room");
    let dir = directory("cgroup-room", 0o700);
    let mut owner = Peer::run(&mut command(&dir));
    cgroup.add(owner.pid());
    assert_eq!(owner.request("default big"), "ok");
    let answer = owner.request("fill 6000000");
    assert!(answer.contains("control group"), "{answer}");
    // A released slot serves a waiting allocation, although the pool cannot grow.
    assert_eq!(owner.request("wait 6000000"), "ok");
    // The pool returns free memory of the wrong size to make room for another size.
    assert_eq!(owner.request("drop"), "ok");
    assert_eq!(owner.request("some 40000000"), "ok");
    assert!(owner.request("some 80000000").contains("control group"));
    owner.finish();
}
