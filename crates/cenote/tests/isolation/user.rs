//! Which users may attach to a pool.
#![allow(unsafe_code, reason = "changing users between fork and exec")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use cenote::{Error, TensorPool, TensorPoolConfig, Wish};

use super::{Role, Test, command, directory, program};
use crate::support::peer::{Peer, ROLE, shell};
use crate::support::raw::pool::{Raw, RawReader, attach_request};
use crate::support::{eventually, filled, unique};

pub(crate) const ROLES: &[Role] =
    &[("unlocked", |_| unlocked()), ("fill_inflight_limit", |_| fill_inflight_limit())];

pub(crate) const TESTS: &[Test] = &[
    ("another_user_is_refused", another),
    ("members_of_a_group_are_accepted_and_others_are_refused", group),
    ("a_mode_gives_access_as_file_permissions_do", mode),
    ("directories_are_opened_by_the_first_pool_that_others_may_attach_to", widened),
    ("a_directory_closed_to_a_user_hides_nothing_else_from_that_user", hidden),
    ("directories_closed_to_the_intended_users_of_a_pool_are_an_error", closed),
    ("group_access_needs_a_directory", group_without_dir),
    ("a_default_directory_that_others_can_use_is_refused", default_dir),
    ("a_directory_with_a_long_path_works", long_path),
    ("a_process_that_keeps_the_lock_does_not_block_others_for_ever", locked),
    ("a_pool_that_may_not_lock_memory_reports_it_and_works", may_not_lock),
    ("unread_descriptors_up_to_the_kernel_limit_do_harm_only_while_they_are_unread", inflight),
];

pub(super) const OTHER_USER: u32 = 65534;
pub(super) const GROUP: u32 = 54321;

/// Makes a command run as another user, with this group and extra groups.
pub(super) fn as_other_user<'a>(
    command: &'a mut Command,
    gid: u32,
    extra: &[u32],
) -> &'a mut Command {
    let extra = extra.to_vec();
    // SAFETY: only system calls between fork and exec. The vector was allocated before.
    unsafe { command.pre_exec(move || become_other_user(gid, &extra)) }
}

fn become_other_user(gid: u32, extra: &[u32]) -> std::io::Result<()> {
    // SAFETY: the pointer and the length are of one slice.
    let groups = unsafe { libc::setgroups(extra.len(), extra.as_ptr()) };
    // SAFETY: it takes a number.
    let group = unsafe { libc::setgid(gid) };
    // SAFETY: it takes a number. It comes last, because it takes away the right to the others.
    let user = unsafe { libc::setuid(OTHER_USER) };
    let done = (groups, group, user) == (0, 0, 0);
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn open_to_all(dir: &Path) {
    for path in [dir.to_owned(), dir.join("default"), dir.join("default/pools")] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    for socket in std::fs::read_dir(dir.join("default/pools")).unwrap() {
        let path = socket.unwrap().path();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
}

fn another() {
    let dir = directory("another", 0o755);
    let mut owner = Peer::run(&mut command(&dir));
    assert_eq!(owner.request("new mine"), "ok");
    let tensor = owner.request("alloc 1000 1");
    let mut other = Peer::run(as_other_user(&mut command(&dir), OTHER_USER, &[]));
    let answer = other.request("open mine");
    assert!(answer.contains("failed"), "the directory is closed to others: {answer}");
    // With every permission given, the kernel still reports the user of the peer.
    open_to_all(&dir);
    for question in ["open mine", &format!("import {tensor}")] {
        let answer = other.request(question);
        assert!(answer.contains("refused: the pool belongs to another user"), "{answer}");
    }
    assert_eq!(owner.request("attachers"), "0");
    other.finish();
    let mut same = Peer::run(&mut command(&dir));
    assert_eq!(same.request("open mine"), "ok");
}

fn group() {
    let dir = directory("group", 0o755);
    let mut owner = Peer::run(&mut command(&dir));
    assert_eq!(owner.request(&format!("group ours {GROUP}")), "ok");
    let tensor = owner.request("alloc 100000 8");
    for (gid, extra) in
        [(GROUP, vec![]), (OTHER_USER, vec![1, GROUP, 2]), (OTHER_USER, vec![GROUP])]
    {
        let mut member = Peer::run(as_other_user(&mut command(&dir), gid, &extra));
        assert_eq!(member.request(&format!("import {tensor}")), "ok");
        assert_eq!(member.request("check 8"), "true");
        assert_eq!(member.request("open ours"), "ok");
        assert!(member.request("one").contains("for the owner"));
        // It can read the directory, and cannot write there.
        assert!(member.request("new theirs").contains("failed"));
        member.finish();
    }
    for open in [false, true] {
        if open {
            open_to_all(&dir);
        }
        let mut other = Peer::run(as_other_user(&mut command(&dir), OTHER_USER, &[1, GROUP + 1]));
        assert_ne!(other.request("open ours"), "ok");
        other.finish();
    }
}

/// Whether a process of another user with these groups may attach to a pool.
fn is_accepted(dir: &Path, pool: &str, gid: u32, extra: &[u32]) -> bool {
    let mut other = Peer::run(as_other_user(&mut command(dir), gid, extra));
    let answer = other.request(&format!("open {pool}"));
    other.finish();
    answer == "ok"
}

fn mode() {
    // Root has the group 0, and so have its sockets.
    for (mode, members, others) in [
        ("600", false, false),
        ("660", true, false),
        ("606", false, true),
        ("666", true, true),
        ("644", false, false),
    ] {
        let dir = directory(&format!("mode-{mode}"), 0o755);
        let mut owner = Peer::run(&mut command(&dir));
        assert_eq!(owner.request(&format!("mode ours {mode}")), "ok");
        let tensor = owner.request("alloc 100000 8");
        assert_eq!(is_accepted(&dir, "ours", 0, &[]), members, "{mode}: a member");
        assert_eq!(
            is_accepted(&dir, "ours", OTHER_USER, &[1, 0]),
            members,
            "{mode}: by another group"
        );
        assert_eq!(is_accepted(&dir, "ours", OTHER_USER, &[1]), others, "{mode}: another");
        if others {
            let mut other = Peer::run(as_other_user(&mut command(&dir), OTHER_USER, &[]));
            assert_eq!(other.request(&format!("import {tensor}")), "ok");
            assert_eq!(other.request("check 8"), "true");
            assert!(
                other.request("new theirs").contains("failed"),
                "it can read, and cannot write"
            );
            other.finish();
        }
    }
}

fn widened() {
    for (name, question) in
        [("group", format!("group ours {GROUP}")), ("mode", "mode ours 666".into())]
    {
        let dir = directory(&format!("widened-{name}"), 0o755);
        let mut owner = Peer::run(&mut command(&dir));
        assert_eq!(owner.request("new mine"), "ok");
        assert_eq!(mode_of(&dir.join("default/pools")), 0o700);
        assert_eq!(owner.request(&question), "ok");
        assert!(is_accepted(&dir, "ours", OTHER_USER, &[GROUP]));
        assert!(
            !is_accepted(&dir, "mine", OTHER_USER, &[GROUP]),
            "its socket is still the user's alone"
        );
        // The next pool of the same user does not close them again.
        assert_eq!(owner.request("new another"), "ok");
        assert!(is_accepted(&dir, "ours", OTHER_USER, &[GROUP]));
    }
}

fn hidden() {
    let dir = directory("hidden", 0o755);
    let mut owner = Peer::run(&mut command(&dir));
    assert_eq!(owner.request("mode ours 666"), "ok");
    let tensor = owner.request("alloc 1000 3");
    let topics = dir.join("default/topics");
    std::fs::create_dir_all(topics.join("private")).unwrap();
    for closed in [topics.join("private"), topics] {
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
        let mut other = Peer::run(as_other_user(&mut command(&dir), OTHER_USER, &[]));
        assert_eq!(other.request("open ours"), "ok");
        other.finish();
        let mut other = Peer::run(as_other_user(&mut command(&dir), OTHER_USER, &[]));
        assert_eq!(other.request(&format!("import {tensor}")), "ok");
        assert_eq!(other.request("check 3"), "true");
        other.finish();
    }
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn closed() {
    // The directory of the user is not changed.
    let dir = directory("closed", 0o700);
    let mut owner = Peer::run(&mut command(&dir));
    for question in [format!("group ours {GROUP}"), "mode ours 660".into(), "mode ours 666".into()]
    {
        let answer = owner.request(&question);
        assert!(
            answer.contains("mode 700) cannot be read by some of the users"),
            "{question}: {answer}"
        );
    }
    assert_eq!(mode_of(&dir), 0o700);
    // The first group keeps its access: another group needs another namespace.
    let dir = directory("two-groups", 0o755);
    let mut owner = Peer::run(&mut command(&dir));
    assert_eq!(owner.request(&format!("group ours {GROUP}")), "ok");
    let answer = owner.request(&format!("group theirs {}", GROUP + 1));
    assert!(answer.contains("CENOTE_NAMESPACE"), "{answer}");
    assert!(is_accepted(&dir, "ours", GROUP, &[]));
}

fn group_without_dir() {
    let mut child = Command::new(program());
    let mut child = Peer::run(child.env(ROLE, "child").env_remove("CENOTE_DIR"));
    for question in ["group ours 0", "mode ours 666"] {
        assert_eq!(child.request(question), Error::GroupNeedsDir.to_string());
    }
}

/// Runs this program with a separate `/dev/shm`, after the shell commands `prepare`.
fn with_own_shm(prepare: &str) -> Peer {
    let script = format!("mount -t tmpfs tmpfs /dev/shm; {prepare}; exec \"$1\"");
    let mut inner = Command::new("unshare");
    inner.args(["-m", "/bin/sh", "-euc", &script, "sh"]).arg(program());
    Peer::run(inner.env(ROLE, "child").env_remove("CENOTE_DIR"))
}

fn default_dir() {
    let untrusted = [
        "mkdir -m 700 /dev/shm/cenote-0; chown 65534 /dev/shm/cenote-0",
        "mkdir -m 755 /dev/shm/cenote-0",
        "mkdir -m 770 /dev/shm/cenote-0",
        "mkdir -m 1777 /dev/shm/cenote-0",
    ];
    for prepare in untrusted {
        let mut child = with_own_shm(prepare);
        for question in ["new mine", "open mine"] {
            let answer = child.request(question);
            assert!(
                answer.contains("it must be this user's, with mode 700"),
                "{prepare}: {answer}"
            );
        }
    }
    let others = ["mkdir /dev/shm/d; ln -s d /dev/shm/cenote-0", "touch /dev/shm/cenote-0"];
    for prepare in others {
        assert!(with_own_shm(prepare).request("new mine").contains("failed"), "{prepare}");
    }
    for prepare in [":", "mkdir -m 700 /dev/shm/cenote-0"] {
        let mut child = with_own_shm(prepare);
        assert_eq!(child.request("new mine"), "ok");
        assert_eq!(child.request("open mine"), "ok");
    }
}

fn long_path() {
    let dir = directory("long", 0o700).join("x".repeat(120)).join("y".repeat(120));
    std::fs::create_dir_all(&dir).unwrap();
    let name = "n".repeat(128);
    let mut owner = Peer::run(&mut command(&dir));
    assert_eq!(owner.request(&format!("new {name}")), "ok");
    let tensor = owner.request("alloc 1000 2");
    let mut other = Peer::run(&mut command(&dir));
    assert_eq!(other.request(&format!("open {name}")), "ok");
    assert_eq!(other.request(&format!("import {tensor}")), "ok");
    assert_eq!(other.request("check 2"), "true");
}

fn locked() {
    let dir = directory("locked", 0o755);
    let mut owner = Peer::run(&mut command(&dir));
    assert_eq!(owner.request("new first"), "ok");
    let script = "exec flock -n -F \"$1\" sh -c 'echo locked; exec sleep 60'";
    let mut lock_holder = Peer::run(&mut shell(script, dir.join("default/pools")));
    assert_eq!(lock_holder.read_line(), "locked");
    let mut second = Peer::run(&mut command(&dir));
    assert!(second.request("new second").contains("locking"));
    // Attaching needs no lock.
    assert_eq!(second.request("open first"), "ok");
    drop(lock_holder);
    let mut third = Peer::run(&mut command(&dir));
    assert_eq!(third.request("new second"), "ok");
}

/// Root may lock any amount of memory, so this runs as another user.
fn may_not_lock() {
    let dir = directory("unlocked", 0o777);
    let mut command = command(&dir);
    command.env(ROLE, "unlocked");
    let child = Peer::run(as_other_user(&mut command, OTHER_USER, &[]));
    assert!(child.finish().success());
}

fn unlocked() {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Memlock, none).unwrap();
    let config = TensorPoolConfig { growth: 1 << 20, mlock: true, ..TensorPoolConfig::small() };
    let pool = TensorPool::new(unique(), config).unwrap();
    let _tensors: Vec<_> = (0..3).map(|_| filled(&pool, 1 << 20, 1)).collect();
    assert_eq!(
        pool.stats().unwrap().not_granted,
        [Wish::Lock],
        "reported once, for any number of segments"
    );
}

/// Root is exempt from the limit on descriptors in flight, so this runs as another user.
fn inflight() {
    let dir = directory("inflight", 0o777);
    let mut command = command(&dir);
    command.env(ROLE, "fill_inflight_limit");
    let child = Peer::run(as_other_user(&mut command, OTHER_USER, &[]));
    assert!(child.finish().success());
}

/// Readers that receive nothing fill the limit of the kernel. After they disconnect, everything works.
fn fill_inflight_limit() {
    let few = rustix::process::Rlimit { current: Some(400), maximum: Some(400) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let config = TensorPoolConfig { growth: 1 << 20, ..TensorPoolConfig::small() };
    let pool = TensorPool::new(unique(), config).unwrap();
    let first = filled(&pool, 1 << 20, 1);
    let honest = TensorPool::open(pool.name()).unwrap();
    let silent: Vec<Raw> = (0..40)
        .map(|_| {
            let raw = Raw::connect(pool.name());
            raw.send(&attach_request(), &[]).unwrap();
            raw
        })
        .collect();
    let more: Vec<_> = (0..30).map(|_| filled(&pool, 1 << 20, 2)).collect();
    assert!(honest.import(&first.descriptor().unwrap()).is_ok());
    let last = more[29].descriptor().unwrap();
    let _ = honest.import(&last);
    drop(silent);
    eventually("the segment arrives", || honest.import(&last).is_ok());
    // The pool may add a segment ahead of need between the two counts.
    eventually("a new reader has all segments", || {
        RawReader::to(pool.name()).segments.len() == pool.stats().unwrap().segments
    });
}
