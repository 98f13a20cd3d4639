//! Processes that are stopped are alive.

use std::time::{Duration, Instant};

use super::{Test, command, directory};
use crate::stranger::PATIENCE;
use crate::stranger::process::Peer;

pub(crate) const TESTS: &[Test] = &[
    ("a_stopped_attacher_keeps_its_leases", attacher),
    ("a_stopped_owner_makes_attaching_time_out_and_works_afterwards", owner),
];

fn attacher() {
    let dir = directory("stopped-attacher", 0o700);
    let mut owner = Peer::run(&mut command(&dir));
    assert_eq!(owner.ask("slots ours 4"), "ok");
    let tensor = owner.ask("alloc 1000 5");
    let mut reader = Peer::run(&mut command(&dir));
    assert_eq!(reader.ask(&format!("import {tensor}")), "ok");
    reader.signal(libc::SIGSTOP);
    assert_eq!(owner.ask("drop"), "ok");
    for round in 0..200 {
        owner.ask(&format!("alloc 1000 {}", round % 4));
        if round % 3 == 2 {
            assert_eq!(owner.ask("drop"), "ok");
        }
    }
    assert_eq!(owner.ask("drop"), "ok");
    (0..3).for_each(|_| drop(owner.ask("alloc 10 9")));
    let error = owner.ask("one");
    assert!(error.contains(&format!("(pid {}) holds 1", reader.pid())), "{error}");
    reader.signal(libc::SIGCONT);
    assert_eq!(reader.ask("check 5"), "true");
    assert_eq!(reader.ask("drop"), "ok");
    assert_eq!(owner.ask("one"), "ok");
}

fn owner() {
    let dir = directory("stopped-owner", 0o700);
    let mut owner = Peer::run(&mut command(&dir));
    assert_eq!(owner.ask("new ours"), "ok");
    let tensor = owner.ask("alloc 1000 6");
    let mut attached = Peer::run(&mut command(&dir));
    assert_eq!(attached.ask("open ours"), "ok");
    owner.signal(libc::SIGSTOP);
    // Who is attached needs no answer.
    assert_eq!(attached.ask(&format!("import {tensor}")), "ok");
    assert_eq!(attached.ask("alive"), "true");
    let (start, mut late) = (Instant::now(), Peer::run(&mut command(&dir)));
    let answer = late.ask("open ours");
    assert!(answer.contains(&format!("(pid {}) did not answer", owner.pid())), "{answer}");
    assert!(answer.contains("is it stopped?"), "{answer}");
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(4) && waited < PATIENCE, "{waited:?}");
    assert!(late.ask("new ours").contains("which is running"));
    owner.signal(libc::SIGCONT);
    assert_eq!(late.ask("open ours"), "ok");
    assert_eq!(late.ask(&format!("import {tensor}")), "ok");
    assert_eq!(late.ask("check 6"), "true");
}
