//! Publishers and owners that send invalid answers to observers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use cenote::{Observer, Topic, pools, topics};
use rustix::fs::SealFlags;

use super::Test;
use crate::support::raw::pool::{FakeEndpoint, packet};
use crate::support::raw::topic::{
    CLOSED, FakePublisher, HEAD, ROW_SEALS, SEALS, fake_endpoint, signature, u64s,
};
use crate::support::{Random, SetOnDrop, eventually, memfd, unique};

pub(crate) const TESTS: &[Test] = &[
    ("an_observer_accepts_valid_descriptions", valid),
    ("an_observer_retries_after_an_invalid_answer", retry),
    ("an_observer_refuses_inconsistent_rings", rings),
    ("an_observer_survives_a_ring_that_changes_all_the_time", changing_ring),
    ("an_observer_refuses_invalid_tensors", tensors),
    ("invalid_reports_of_pools_are_ignored", accounts),
];

const UID: u64 = 0xbad0_0000_0000_0003;
const DESCRIPTION: u32 = 12;
const REPORT: u32 = 15;

/// The description that a publisher sends on request.
fn description(publisher: &FakePublisher, signature: &[u8]) -> Vec<u8> {
    let reply = &publisher.reply;
    let words = [reply.first, reply.depth, reply.payload, reply.waits].map(u64::to_ne_bytes);
    // The count and bytes of copies, for each of six reasons.
    let copies = [0; 6 * 2 * size_of::<u64>()];
    [&packet(DESCRIPTION, 0, 0)[..], &7_u64.to_ne_bytes(), signature, &words.concat(), &copies]
        .concat()
}

/// Runs `act` while the endpoint gives every process the same answer.
fn while_answering<R>(
    endpoint: &FakeEndpoint,
    answer: &[u8],
    fd: Option<&OwnedFd>,
    act: impl FnOnce() -> R,
) -> R {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if endpoint.has_connection_within(std::time::Duration::from_millis(5)) {
                    let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
                    let _ = endpoint.accept_request().send(answer, &fds);
                }
            }
        });
        let _done = SetOnDrop(&done);
        act()
    })
}

/// An observer that is connected to a publisher with this answer.
fn observer(
    name: &str,
    endpoint: &FakeEndpoint,
    answer: &[u8],
    publisher: &FakePublisher,
) -> Observer {
    while_answering(endpoint, answer, Some(&publisher.fds[0]), || {
        let mut observer = Observer::new(name).unwrap();
        eventually("it is connected", || {
            assert!(observer.look().unwrap().is_none());
            observer.publishers() == 1
        });
        observer
    })
}

fn valid() {
    let name = unique();
    let (endpoint, publisher) = (fake_endpoint(&name, UID), FakePublisher::honest(UID));
    let mut observer = observer(&name, &endpoint, &description(&publisher, &u64s()), &publisher);
    (0..3).for_each(|number| publisher.publish(number, &[number + 40]));
    drop(endpoint);
    for number in 0..3 {
        let seen = observer.look().unwrap().unwrap();
        assert_eq!((seen.sequence, seen.publisher, seen.nbytes), (number, UID, 8));
    }
    publisher.write(CLOSED, 1);
    assert!(observer.newest().unwrap().is_none());
    assert_eq!(observer.publishers(), 0, "it has closed its ring");
}

fn retry() {
    let name = unique();
    let (endpoint, publisher) = (fake_endpoint(&name, UID), FakePublisher::honest(UID));
    let (answer, ring) = (description(&publisher, &u64s()), Some(&publisher.fds[0]));
    let mut observer = while_answering(&endpoint, &[], None, || Observer::new(&name).unwrap());
    assert_eq!(observer.publishers(), 0);
    while_answering(&endpoint, &answer, ring, || {
        eventually("the observer tries again", || {
            observer.look().unwrap();
            observer.publishers() == 1
        });
    });
}

fn rings() {
    let spoils: &[fn(&mut FakePublisher)] = &[
        |l| l.reply.depth = 0,
        |l| l.reply.depth = 9,
        |l| l.reply.depth = u64::MAX,
        |l| l.reply.payload = 1 << 13,
        |l| l.reply.payload = u64::MAX,
        |l| l.fds.clear(),
        |l| l.fds[0] = memfd(768, ROW_SEALS),
        |l| l.fds[0] = memfd(768, SealFlags::FUTURE_WRITE),
        |l| l.fds[0] = memfd(767, SEALS),
        |l| l.fds[0] = memfd(0, SEALS),
        |l| l.fds[0] = std::fs::File::open("/dev/zero").unwrap().into(),
        |l| l.fds[0] = std::io::pipe().unwrap().0.into(),
    ];
    for (number, spoil) in spoils.iter().enumerate() {
        let name = unique();
        let honest: Topic<u64> = Topic::new(&name).unwrap();
        honest.advertise().unwrap();
        let (endpoint, mut publisher) = (fake_endpoint(&name, UID), FakePublisher::honest(UID));
        spoil(&mut publisher);
        let answer = description(&publisher, &u64s());
        while_answering(&endpoint, &answer, publisher.fds.first(), || {
            let mut observer = Observer::new(&name).unwrap();
            assert_eq!(observer.publishers(), 1, "lie {number} was believed");
            honest.send(&5).unwrap();
            assert_eq!(observer.look().unwrap().unwrap().nbytes, 8);
            // The description itself can be listed, whatever it is.
            assert_eq!(
                topics().unwrap().iter().find(|it| it.name == name).unwrap().publishers.len(),
                2
            );
        });
    }
}

fn changing_ring() {
    let name = unique();
    let (endpoint, publisher) = (fake_endpoint(&name, UID), FakePublisher::honest(UID));
    let mut observer = observer(&name, &endpoint, &description(&publisher, &u64s()), &publisher);
    drop(endpoint);
    let mut random = Random(5);
    let words = publisher.reply.words();
    for _ in 0..20_000 {
        let value = [random.next(), random.next() % 8, u64::MAX][random.below(3)];
        publisher.write(random.below(words), value);
        if random.below(4) == 0 {
            publisher.write(HEAD, value);
        }
        if let Some(seen) = observer.look().unwrap() {
            assert!(seen.nbytes <= 8);
            observer.content(&seen).unwrap();
        }
        if let Some(seen) = observer.newest().unwrap() {
            assert!(seen.nbytes <= 8);
        }
    }
}

fn tensors() {
    let name = unique();
    let (endpoint, publisher) = (fake_endpoint(&name, UID), FakePublisher::honest(UID));
    let answer = description(&publisher, &signature(2, 0, 0, "Image"));
    let mut observer = observer(&name, &endpoint, &answer, &publisher);
    drop(endpoint);
    let mut random = Random(6);
    for number in 0..5_000 {
        // A u8 tensor of two dimensions in an unknown pool, with one word replaced.
        let codes = 2 << 32 | 8 << 40 | 1 << 56;
        let mut words = vec![2, codes, random.next(), 0, 1 << 32, 4, 4, 0, 0, 0];
        let at = random.below(words.len());
        words[at] = [random.next(), 0, u64::MAX][random.below(3)];
        words.truncate(random.below(words.len() + 1));
        publisher.publish(number, &words);
        if let Ok(Some(seen)) = observer.look() {
            assert!(observer.content(&seen).map_or(true, |content| content.is_none()));
        }
    }
}

fn accounts() {
    let endpoint = FakeEndpoint::new(UID);
    let mut random = Random(7);
    for len in [0, 1, 23, 24, 100, 400, 500, 4000, 30_000] {
        for kind in [REPORT, DESCRIPTION, u32::MAX] {
            let garbage = std::iter::repeat_with(|| random.next().to_le_bytes()[0]);
            let answer: Vec<u8> = packet(kind, 0, 0).into_iter().chain(garbage).take(len).collect();
            let found = while_answering(&endpoint, &answer, None, || pools().unwrap());
            let found = found.into_iter().find(|pool| pool.uid == UID).unwrap();
            let plausible = kind == REPORT && len >= 400;
            assert!(plausible || found.account.is_none(), "{kind} {len}");
            for process in found.account.iter().flat_map(|account| &account.processes) {
                assert!(!process.program.chars().any(char::is_control));
            }
        }
    }
}
