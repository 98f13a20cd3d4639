//! Publishers that introduce pools that are invalid, or not theirs.

use std::os::fd::{AsFd, OwnedFd};

use cenote::{Tensor, Topic};

use super::Test;
use super::owner::Answer;
use super::publisher::accepted;
use crate::support::raw::pool::{INTRODUCED, Raw, packet, pair};
use crate::support::raw::topic::{FakePublisher, SEALS};
use crate::support::{filled, memfd, pool, unique};

pub(crate) const TESTS: &[Test] = &[
    ("a_validly_introduced_pool_is_accepted", valid),
    ("invalid_introduced_pools_are_ignored", invalid),
    ("an_introduced_pool_does_not_replace_another_of_the_same_uid", impostor),
    ("a_publisher_that_introduces_pools_without_end", endless),
];

const UID: u64 = 0xbad0_0000_0000_0003;
/// The uid of the introduced pool.
const OTHER: u64 = 0xbad0_0000_0000_0004;

/// A connection on which an owner has already replied: the owner's end, and the reader's.
fn replied(answer: &Answer) -> (Raw, OwnedFd) {
    let (ours, theirs) = pair();
    answer.send(&ours);
    (ours, theirs)
}

/// Introduces a pool.
fn introduce(to: &Raw, uid: u64, name: &[u8], fds: &[&OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    to.send(&[&packet(INTRODUCED, 0, uid)[..], name].concat(), &fds).unwrap();
}

/// Sends 1000 bytes of a slot as message `sequence`. Returns what is received; `None` if it is missed.
fn sent(
    topic: &Topic<Tensor>,
    publisher: &FakePublisher,
    sequence: u64,
    pool: u64,
) -> Option<Vec<u8>> {
    publisher.publish(sequence, &[2, 3 | 1 << 32 | 8 << 40, pool, 0, 0, 1000, 1]);
    let missed = topic.missed();
    loop {
        match topic.recv() {
            Some(tensor) => return Some(tensor.to_vec::<u8>().unwrap()),
            None if topic.missed() > missed => return None,
            None => std::thread::yield_now(),
        }
    }
}

fn valid() {
    let (topic, publisher, [of_pool, _ring]) = accepted(&unique(), UID);
    let (_kept, theirs) = replied(&Answer::honest(OTHER));
    introduce(&of_pool, OTHER, b"other", &[&theirs]);
    for sequence in 0..3 {
        assert_eq!(sent(&topic, &publisher, sequence, OTHER), Some(vec![6; 1000]));
    }
}

fn invalid() {
    let honest = Answer::honest(OTHER);
    let (silent, file, pipe) = (pair(), memfd(4096, SEALS), std::io::pipe().unwrap());
    let (disconnected, wrong_reply) = (pair().1, pair());
    wrong_reply.0.send(&[7; 3120], &[]).unwrap();
    let garbage = [&silent.1, &file, &OwnedFd::from(pipe.0), &disconnected, &wrong_reply.1];
    let (topic, publisher, [of_pool, _ring]) = accepted(&unique(), UID);
    introduce(&of_pool, OTHER, b"other", &[]);
    garbage.iter().for_each(|fd| introduce(&of_pool, OTHER, b"other", &[fd]));
    for (uid, name) in
        [(OTHER + 1, &b"other"[..]), (OTHER, b""), (OTHER, b"../x"), (OTHER, b"\xff")]
    {
        let (_kept, theirs) = replied(&honest);
        introduce(&of_pool, uid, name, &[&theirs]);
    }
    let (_kept, theirs) = replied(&honest);
    introduce(&of_pool, OTHER, b"other", &[&theirs, &theirs]);
    for sequence in 0..3 {
        assert_eq!(sent(&topic, &publisher, sequence, OTHER), None, "{:?}", topic.last_loss());
        assert!(topic.last_loss().is_some());
    }
    // The publisher's own pool still works.
    assert_eq!(sent(&topic, &publisher, 3, UID), Some(vec![6; 1000]));
}

fn impostor() {
    let ours = pool(4);
    let (topic, publisher, [of_pool, _ring]) = accepted(&unique(), UID);
    let (_kept, theirs) = replied(&Answer::honest(ours.uid()));
    introduce(&of_pool, ours.uid(), b"ours", &[&theirs]);
    assert_eq!(sent(&topic, &publisher, 0, ours.uid()), None, "slot 3 was never published");
    let tensor = filled(&ours, 1000, 1);
    let again = Tensor::from_descriptor(&tensor.descriptor().unwrap()).unwrap();
    assert_eq!(again.to_vec::<u8>().unwrap(), [1; 1000]);
}

fn endless() {
    let (topic, publisher, [of_pool, _ring]) = accepted(&unique(), UID);
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let before = maps();
    // Kept open, so that each owner seems alive.
    let _kept: Vec<Raw> = (0..200)
        .map(|uid| {
            let (ours, theirs) = replied(&Answer::honest(OTHER + uid));
            introduce(&of_pool, OTHER + uid, b"other", &[&theirs]);
            ours
        })
        .collect();
    assert_eq!(sent(&topic, &publisher, 0, OTHER), Some(vec![6; 1000]));
    assert_eq!(sent(&topic, &publisher, 1, OTHER + 150), None, "there are too many");
    assert!(maps() < before + 200, "{} and {}", before, maps());
}
