//! Namespaces: containers that share one directory, and a `/dev/shm` that is too small for pools.

use std::path::Path;
use std::process::Command;

use super::{Test, command, directory, program};
use crate::support::eventually;
use crate::support::peer::{Peer, ROLE};

pub(crate) const TESTS: &[Test] = &[
    ("a_pool_without_inotify_works_and_reports_it", unwatched),
    ("a_tiny_dev_shm_changes_nothing", tiny),
    ("two_containers_that_share_a_directory_share_a_pool", containers),
];

/// Runs this program in new mount and pid namespaces, with the directory at another path.
fn container(shared: &Path, at: &str) -> Peer {
    let script = format!(
        "mount -t tmpfs -o size=1m tmpfs /dev/shm; mount --bind '{}' {at}; \
         export CENOTE_DIR={at}; exec \"$1\"",
        shared.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "-p", "-f", "--kill-child", "--mount-proc", "/bin/sh", "-euc", &script]);
    Peer::run(command.arg("sh").arg(program()).env(ROLE, "child").env_remove("CENOTE_DIR"))
}

fn tiny() {
    let script = "mount -t tmpfs -o size=8m tmpfs /dev/shm; exec \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "/bin/sh", "-euc", script, "sh"]).arg(program());
    let mut child = Peer::run(command.env(ROLE, "child").env_remove("CENOTE_DIR"));
    assert_eq!(child.request("new big"), "ok");
    let tensors: Vec<String> = (0..9).map(|_| child.request("alloc 6000000 3")).collect();
    assert_eq!(child.request("open big"), "ok");
    for tensor in tensors {
        assert_eq!(child.request(&format!("import {tensor}")), "ok");
    }
    assert_eq!(child.request("check 3"), "true");
}

fn containers() {
    let shared = directory("shared", 0o700);
    let mut owner = container(&shared, "/mnt");
    assert_eq!(owner.request("slots ours 4"), "ok");
    let tensor = owner.request("alloc 1000000 7");
    let mut reader = container(&shared, "/media");
    assert_eq!(reader.request("open ours"), "ok");
    assert_eq!(reader.request(&format!("import {tensor}")), "ok");
    assert_eq!(reader.request("check 7"), "true");
    assert!(
        reader.request("one").contains("(pid 0)"),
        "its pid namespace does not contain the owner"
    );
    // The owner drops the tensor. The reader keeps its lease, and then dies.
    assert_eq!(owner.request("drop"), "ok");
    for _ in 0..3 {
        owner.request("alloc 10 0");
    }
    let error = owner.request("one");
    assert!(error.contains("unknown (pid 0) holds 1"), "{error}");
    assert_eq!(reader.request("check 7"), "true");
    reader.kill();
    eventually("the slot is free again", || owner.request("one") == "ok");
    assert_eq!(owner.request("attachers"), "0");
    // Now the owner dies, and the reader stays.
    let tensor = owner.request("alloc 1000 5");
    let mut reader = container(&shared, "/media");
    assert_eq!(reader.request("open ours"), "ok");
    assert_eq!(reader.request(&format!("import {tensor}")), "ok");
    owner.kill();
    eventually("its death is noticed", || reader.request("alive") == "false");
    assert_eq!(reader.request("check 5"), "true");
    let mut next = container(&shared, "/mnt");
    // A dying process closes one socket after the other.
    eventually("its name is free", || next.request("new ours") == "ok");
    assert_eq!(std::fs::read_dir(shared.join("default/pools")).unwrap().count(), 1);
}

/// In a new user namespace, which may have no instance of inotify.
fn unwatched() {
    let dir = directory("unwatched", 0o700);
    let mut ordinary = Peer::run(&mut command(&dir));
    assert_eq!(ordinary.request("new ordinary"), "ok");
    assert_eq!(ordinary.request("watched"), "true");
    let script = "echo 0 > /proc/sys/user/max_inotify_instances; exec \"$1\"";
    let mut inner = Command::new("unshare");
    inner.args(["-U", "-r", "/bin/sh", "-euc", script, "sh"]).arg(program());
    let mut owner = Peer::run(inner.env(ROLE, "child").env("CENOTE_DIR", &dir));
    assert_eq!(owner.request("new poor"), "ok");
    assert_eq!(owner.request("watched"), "false");
    let tensor = owner.request("alloc 1000 4");
    assert_eq!(ordinary.request(&format!("import {tensor}")), "ok");
    assert_eq!(ordinary.request("check 4"), "true");
}
