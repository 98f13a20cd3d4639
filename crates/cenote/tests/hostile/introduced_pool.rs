//! Publishers that introduce pools that do not exist, or that belong to another process.

use std::os::fd::{AsFd, OwnedFd};

use cenote::{Tensor, Topic};

use super::Test;
use super::owner::Answer;
use super::publisher::believed;
use crate::support::raw::pool::{LENT, Raw, packet, pair};
use crate::support::raw::topic::{Liar, SEALS};
use crate::support::{filled, memfd, pool, unique};

pub(crate) const TESTS: &[Test] = &[
    ("a_correctly_introduced_pool_is_accepted", truth),
    ("introductions_of_invalid_pools_are_rejected", lies),
    ("an_introduced_pool_is_not_taken_for_another_of_that_uid", impostor),
    ("a_publisher_that_introduces_pools_without_end", endless),
];

const UID: u64 = 0xbad0_0000_0000_0003;
/// Of the pool that is lent.
const OTHER: u64 = 0xbad0_0000_0000_0004;

/// The other end of a connection in which an owner's welcome waits, and our own.
fn welcomed(answer: &Answer) -> (Raw, OwnedFd) {
    let (ours, theirs) = pair();
    answer.send(&ours);
    (ours, theirs)
}

/// Says that a pool is lent.
fn lend(to: &Raw, uid: u64, name: &[u8], fds: &[&OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    to.send(&[&packet(LENT, 0, uid)[..], name].concat(), &fds).unwrap();
}

/// Sends 1000 bytes of a slot of a pool as message `sequence`; what is received of it.
fn sent(topic: &Topic<Tensor>, liar: &Liar, sequence: u64, pool: u64) -> Option<Vec<u8>> {
    liar.publish(sequence, &[2, 3 | 1 << 32 | 8 << 40, pool, 0, 0, 1000, 1]);
    let missed = topic.missed();
    loop {
        match topic.recv() {
            Some(tensor) => return Some(tensor.to_vec::<u8>().unwrap()),
            None if topic.missed() > missed => return None,
            None => std::thread::yield_now(),
        }
    }
}

fn truth() {
    let (topic, liar, [of_pool, _ring]) = believed(&unique(), UID);
    let (_kept, theirs) = welcomed(&Answer::honest(OTHER));
    lend(&of_pool, OTHER, b"other", &[&theirs]);
    for sequence in 0..3 {
        assert_eq!(sent(&topic, &liar, sequence, OTHER), Some(vec![6; 1000]));
    }
}

fn lies() {
    let honest = Answer::honest(OTHER);
    let (silent, file, pipe) = (pair(), memfd(4096, SEALS), std::io::pipe().unwrap());
    let (hung_up, chatty) = (pair().1, pair());
    chatty.0.send(&[7; 3120], &[]).unwrap();
    let garbage = [&silent.1, &file, &OwnedFd::from(pipe.0), &hung_up, &chatty.1];
    let (topic, liar, [of_pool, _ring]) = believed(&unique(), UID);
    lend(&of_pool, OTHER, b"other", &[]);
    garbage.iter().for_each(|fd| lend(&of_pool, OTHER, b"other", &[fd]));
    for (uid, name) in
        [(OTHER + 1, &b"other"[..]), (OTHER, b""), (OTHER, b"../x"), (OTHER, b"\xff")]
    {
        let (_kept, theirs) = welcomed(&honest);
        lend(&of_pool, uid, name, &[&theirs]);
    }
    let (_kept, theirs) = welcomed(&honest);
    lend(&of_pool, OTHER, b"other", &[&theirs, &theirs]);
    for sequence in 0..3 {
        assert_eq!(sent(&topic, &liar, sequence, OTHER), None, "{:?}", topic.last_loss());
        assert!(topic.last_loss().is_some());
    }
    // Its own pool is what it was.
    assert_eq!(sent(&topic, &liar, 3, UID), Some(vec![6; 1000]));
}

fn impostor() {
    let ours = pool(4);
    let (topic, liar, [of_pool, _ring]) = believed(&unique(), UID);
    let (_kept, theirs) = welcomed(&Answer::honest(ours.uid()));
    lend(&of_pool, ours.uid(), b"ours", &[&theirs]);
    assert_eq!(sent(&topic, &liar, 0, ours.uid()), None, "slot 3 was never published");
    let tensor = filled(&ours, 1000, 1);
    let again = Tensor::from_descriptor(&tensor.descriptor().unwrap()).unwrap();
    assert_eq!(again.to_vec::<u8>().unwrap(), [1; 1000]);
}

fn endless() {
    let (topic, liar, [of_pool, _ring]) = believed(&unique(), UID);
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let before = maps();
    // Kept, so that each looks alive.
    let _kept: Vec<Raw> = (0..200)
        .map(|uid| {
            let (ours, theirs) = welcomed(&Answer::honest(OTHER + uid));
            lend(&of_pool, OTHER + uid, b"other", &[&theirs]);
            ours
        })
        .collect();
    assert_eq!(sent(&topic, &liar, 0, OTHER), Some(vec![6; 1000]));
    assert_eq!(sent(&topic, &liar, 1, OTHER + 150), None, "there are too many");
    assert!(maps() < before + 200, "{} and {}", before, maps());
}
