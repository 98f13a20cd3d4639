//! After many have come, and gone or been killed, nothing is left of them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote::{Tensor, Topic};

use super::talk::{LONG, peer, publisher, send, subscriber, topic};
use super::{Role, Test};
use crate::support::peer::{Peer, serve};
use crate::support::{OpenResources, Random, eventually, rounds, topic_dir, unique};

pub(crate) const TESTS: &[Test] = &[
    ("two_hundred_come_and_go_and_leave_nothing", run),
    ("whoever_never_receives_keeps_nothing_of_those_who_sent_nothing", idle),
    ("the_last_to_leave_a_topic_removes_its_directory", last),
    ("a_subscriber_outlives_its_directory", removed),
    ("publishers_that_come_and_go_one_by_one_are_all_found", one_by_one),
    ("whoever_comes_while_another_leaves_has_a_directory", crossing),
    ("of_those_who_leave_at_once_one_removes_the_directory", at_once),
];

/// The survivor is a child, for other tests have descriptors and memory, too.
pub(crate) const ROLES: &[Role] = &[("survivor", survivor), ("idler", idler)];

/// Peers at a time.
const BATCH: u64 = 10;

fn run() {
    let mut survivor = Peer::start(&format!("survivor {}", unique()));
    assert_eq!(survivor.request("go"), "nothing is left");
}

fn idle() {
    let mut idler = Peer::start(&format!("idler {}", unique()));
    assert_eq!(idler.request("go"), "nothing is left");
}

fn idler(words: &[&str]) {
    let name = words[0].to_owned();
    serve(|_| {
        let topic = topic::<u64>(&name, "ignore_own");
        topic.subscribe().unwrap();
        let before = OpenResources::now();
        for _ in 0..100 {
            let other = super::talk::topic::<u64>(&name, "ignore_own");
            assert_eq!(other.wait_for_subscribers(1, LONG).unwrap(), 1);
        }
        // The last few are forgotten when the next one comes.
        eventually("they are forgotten", || OpenResources::now().fds < before.fds + 30);
        "nothing is left".to_owned()
    });
}

fn last() {
    for kind in ["u64", "tensor"] {
        let name = unique();
        let (mut publisher, mut subscriber) =
            (publisher(kind, &name, ""), subscriber(kind, &name, ""));
        assert_eq!(publisher.request("subscribers 1"), "1");
        assert_eq!(
            (publisher.request("send 0 1"), subscriber.request("take 1")),
            ("ok".into(), "0".into())
        );
        assert!(topic_dir(&name).exists());
        assert_eq!(publisher.request("drop"), "ok");
        assert_eq!(subscriber.request("drop"), "ok");
        eventually("it is removed", || !topic_dir(&name).exists());
    }
    // Nor does one that was never used leave any, or make one.
    let name = unique();
    drop(topic::<u64>(&name, ""));
    assert!(!topic_dir(&name).exists());
}

/// As a session manager might remove it, with all that is beside it.
fn removed() {
    let name = unique();
    let topic = topic::<u64>(&name, "");
    topic.subscribe().unwrap();
    for round in 0..5 {
        std::fs::remove_dir(topic_dir(&name)).unwrap();
        eventually("it is made anew", || topic_dir(&name).exists());
        let mut publisher = peer("u64", &name, "");
        assert_eq!(publisher.request(&format!("send {round} {}", round + 1)), "ok");
        assert_eq!(topic.recv_timeout(LONG).unwrap(), Some(round));
        publisher.kill();
        eventually("it is gone", || topic.recv().is_none() && topic.stats().publishers == 0);
        // What was killed left its socket, which the next look removes.
        super::talk::topic::<u64>(&name, "").subscribe().unwrap();
        eventually("it is empty", || {
            topic_dir(&name).read_dir().is_ok_and(|mut d| d.next().is_none())
        });
    }
}

fn one_by_one() {
    let name = unique();
    let topic = topic::<u64>(&name, "");
    topic.subscribe().unwrap();
    for number in 0..rounds(30) as u64 {
        let mut publisher = peer("u64", &name, "");
        assert_eq!(publisher.request("subscribers 1"), "1");
        assert_eq!(publisher.request(&format!("send {number} {}", number + 1)), "ok");
        assert!(publisher.finish().success());
        assert_eq!(topic.recv_timeout(LONG).unwrap(), Some(number));
    }
}

/// Each removes the directory when it leaves, if nobody else is there; nobody is kept from coming by that.
fn crossing() {
    let name = unique();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..50 {
                    let topic = topic::<u64>(&name, "");
                    topic.send(&number).unwrap();
                    let own = std::iter::from_fn(|| topic.recv_timeout(LONG).unwrap());
                    assert!(own.take(1000).any(|found| found == number));
                }
            });
        }
    });
    assert!(!topic_dir(&name).exists());
}

fn at_once() {
    const LEAVE: usize = 4;
    let (name, together) = (unique(), Barrier::new(LEAVE));
    let left = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..LEAVE {
            scope.spawn(|| {
                for round in 0..rounds(200) {
                    let topic = topic::<u64>(&name, "");
                    topic.advertise().unwrap();
                    together.wait();
                    drop(topic);
                    together.wait();
                    // All end if one does: the others would wait for it.
                    left.fetch_or(topic_dir(&name).exists(), Ordering::Relaxed);
                    together.wait();
                    assert!(!left.load(Ordering::Relaxed), "round {round}");
                }
            });
        }
    });
}

fn survivor(words: &[&str]) {
    let name = words[0].to_owned();
    serve(|_| {
        // A pool that grew would have a segment more than before.
        let topic = topic::<Tensor>(&name, "depth=4,ignore_own,growth=16777216");
        topic.subscribe().unwrap();
        let mut random = Random(11);
        (0..3).for_each(|_| batch(&topic, &mut random));
        let (before, memory) = (OpenResources::now(), Memory::now());
        (0..20).for_each(|_| batch(&topic, &mut random));
        before.assert_none_leaked();
        memory.check();
        let dir = std::path::PathBuf::from(std::env::var_os("CENOTE_DIR").unwrap());
        let left = std::fs::read_dir(dir.join("default/topics").join(&name)).unwrap().count();
        assert_eq!(left, 1, "only our own socket");
        "nothing is left".to_owned()
    });
}

/// Half of them send, half receive; some end, some are killed.
fn batch(topic: &Topic<Tensor>, random: &mut Random) {
    let half = BATCH / 2;
    let (mut publishers, mut subscribers): (Vec<Peer>, Vec<Peer>) = (0..half)
        .map(|_| (peer("tensor", topic.name(), ""), peer("tensor", topic.name(), "")))
        .unzip();
    subscribers.iter_mut().for_each(|one| one.write_line("subscribe"));
    publishers.iter_mut().for_each(|one| one.write_line(&format!("subscribers {}", half + 1)));
    subscribers.iter_mut().for_each(|one| assert_eq!(one.read_line(), "ok"));
    let all = usize::try_from(half).unwrap();
    assert_eq!(topic.wait_for_subscribers(all, LONG).unwrap(), all);
    publishers.iter_mut().for_each(|one| assert_eq!(one.read_line(), (half + 1).to_string()));
    for round in 0..5 {
        send(topic, round).unwrap();
        publishers.iter_mut().for_each(|one| one.write_line("send 0 2"));
        publishers.iter_mut().for_each(|one| assert_eq!(one.read_line(), "ok"));
        while topic.recv().is_some() {}
        subscribers.iter_mut().for_each(|one| assert_eq!(one.request("keep"), "ok"));
    }
    for one in publishers.into_iter().chain(subscribers) {
        if random.below(2) == 0 { one.kill() } else { assert!(one.finish().success()) }
    }
    eventually("all are gone", || {
        while topic.recv().is_some() {}
        let stats = topic.stats();
        stats.publishers == 0 && stats.subscribers == 0
    });
    // Sockets of those that were killed are removed by the next to come.
    super::talk::topic::<Tensor>(topic.name(), "").subscribe().unwrap();
    eventually("that one is gone, too", || topic.stats().subscribers == 0);
}

/// The memory of this process, in KiB.
#[derive(Debug)]
struct Memory {
    private: u64,
    shared: u64,
}

impl Memory {
    fn now() -> Memory {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let of = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        Memory { private: of("RssAnon:"), shared: of("RssShmem:") }
    }

    /// Allocators keep some of what they freed; shared memory goes when it is unmapped.
    fn check(&self) {
        let now = Memory::now();
        assert!(now.shared <= self.shared + 64, "{self:?} before, {now:?} after");
        // An emulator's own memory grows with every piece of code it translates, and a sanitizer keeps
        // what was freed.
        let guests = ["CENOTE_TEST_EMULATED", "ASAN_OPTIONS"];
        let guest = guests.iter().any(|name| std::env::var_os(name).is_some());
        assert!(guest || now.private <= self.private + 1024, "{self:?} before, {now:?} after");
    }
}
