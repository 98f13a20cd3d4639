//! Stopped processes count as alive.

use std::time::{Duration, Instant};

use super::{Test, command, directory};
use crate::support::TIMEOUT;
use crate::support::peer::Peer;

pub(crate) const TESTS: &[Test] = &[
    ("a_stopped_reader_keeps_its_leases", stopped_reader),
    ("a_stopped_owner_makes_attaching_time_out_and_works_afterwards", owner),
];

fn stopped_reader() {
    let dir = directory("stopped-reader", 0o700);
    let mut owner = Peer::run(&mut command(&dir));
    assert_eq!(owner.request("slots ours 4"), "ok");
    let tensor = owner.request("alloc 1000 5");
    let mut reader = Peer::run(&mut command(&dir));
    assert_eq!(reader.request(&format!("import {tensor}")), "ok");
    reader.signal(libc::SIGSTOP);
    assert_eq!(owner.request("drop"), "ok");
    for round in 0..200 {
        owner.request(&format!("alloc 1000 {}", round % 4));
        if round % 3 == 2 {
            assert_eq!(owner.request("drop"), "ok");
        }
    }
    assert_eq!(owner.request("drop"), "ok");
    (0..3).for_each(|_| drop(owner.request("alloc 10 9")));
    let error = owner.request("one");
    assert!(error.contains(&format!("(pid {}) holds 1", reader.pid())), "{error}");
    reader.signal(libc::SIGCONT);
    assert_eq!(reader.request("check 5"), "true");
    assert_eq!(reader.request("drop"), "ok");
    assert_eq!(owner.request("one"), "ok");
}

fn owner() {
    let dir = directory("stopped-owner", 0o700);
    let mut owner = Peer::run(&mut command(&dir));
    assert_eq!(owner.request("new ours"), "ok");
    let tensor = owner.request("alloc 1000 6");
    let mut attached = Peer::run(&mut command(&dir));
    assert_eq!(attached.request("open ours"), "ok");
    owner.signal(libc::SIGSTOP);
    // An attached reader needs no answer of the owner.
    assert_eq!(attached.request(&format!("import {tensor}")), "ok");
    assert_eq!(attached.request("alive"), "true");
    let (start, mut late) = (Instant::now(), Peer::run(&mut command(&dir)));
    let answer = late.request("open ours");
    assert!(answer.contains(&format!("(pid {}) did not answer", owner.pid())), "{answer}");
    assert!(answer.contains("is it stopped?"), "{answer}");
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(4) && waited < TIMEOUT, "{waited:?}");
    assert!(late.request("new ours").contains("which is running"));
    owner.signal(libc::SIGCONT);
    assert_eq!(late.request("open ours"), "ok");
    assert_eq!(late.request(&format!("import {tensor}")), "ok");
    assert_eq!(late.request("check 6"), "true");
}
