//! Processes that use a topic and end, in order or killed, leave nothing behind.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote::{Tensor, Topic};

use super::child::{LONG, peer, publisher, send, subscriber, topic};
use super::{Role, Test};
use crate::support::peer::{Peer, serve};
use crate::support::{OpenResources, Random, eventually, rounds, topic_dir, unique};

pub(crate) const TESTS: &[Test] = &[
    ("two_hundred_processes_leave_nothing", run),
    ("a_subscriber_that_never_receives_keeps_nothing_of_ended_publishers", idle),
    ("the_last_process_of_a_topic_removes_its_directory", last),
    ("a_subscriber_outlives_its_directory", removed),
    ("publishers_that_start_one_after_the_other_are_all_found", one_by_one),
    ("a_topic_that_starts_while_another_ends_has_a_directory", crossing),
    ("topics_that_end_at_once_remove_the_directory", at_once),
];

/// The survivor is a child process, because other tests of this process use descriptors and memory, too.
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
            let other = super::child::topic::<u64>(&name, "ignore_own");
            assert_eq!(other.wait_for_subscribers(1, LONG).unwrap(), 1);
        }
        // The topic drops the last few when the next publisher connects.
        eventually("their connections are closed", || OpenResources::now().fds < before.fds + 30);
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
    // A topic that was never used makes no directory.
    let name = unique();
    drop(topic::<u64>(&name, ""));
    assert!(!topic_dir(&name).exists());
}

/// A session manager may remove the directory.
fn removed() {
    let name = unique();
    let topic = topic::<u64>(&name, "");
    topic.subscribe().unwrap();
    for round in 0..5 {
        std::fs::remove_dir(topic_dir(&name)).unwrap();
        eventually("it is made again", || topic_dir(&name).exists());
        let mut publisher = peer("u64", &name, "");
        assert_eq!(publisher.request(&format!("send {round} {}", round + 1)), "ok");
        assert_eq!(topic.recv_timeout(LONG).unwrap(), Some(round));
        publisher.kill();
        eventually("the publisher is disconnected", || {
            topic.recv().is_none() && topic.stats().publishers == 0
        });
        // The killed publisher left its socket, which the next subscriber removes.
        super::child::topic::<u64>(&name, "").subscribe().unwrap();
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

/// Each topic removes the directory if it is the last. That never keeps another topic from starting.
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
    const THREADS: usize = 4;
    let (name, together) = (unique(), Barrier::new(THREADS));
    let left = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..rounds(200) {
                    let topic = topic::<u64>(&name, "");
                    topic.advertise().unwrap();
                    together.wait();
                    drop(topic);
                    together.wait();
                    // All threads end in the same round: otherwise the others would wait at the barrier.
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
        // One large segment: a pool that grows has one more afterwards.
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

/// Half of the processes send, half receive. Some end in order, some are killed.
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
    eventually("all are disconnected", || {
        while topic.recv().is_some() {}
        let stats = topic.stats();
        stats.publishers == 0 && stats.subscribers == 0
    });
    // The next subscriber removes the sockets of killed publishers.
    super::child::topic::<Tensor>(topic.name(), "").subscribe().unwrap();
    eventually("that subscriber is disconnected, too", || topic.stats().subscribers == 0);
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

    /// Asserts that memory did not grow. The allocator keeps some freed memory; shared memory ends when unmapped.
    fn check(&self) {
        let now = Memory::now();
        assert!(now.shared <= self.shared + 64, "{self:?} before, {now:?} after");
        // An emulator keeps all code that it translated, and a sanitizer keeps freed memory.
        let guests = ["CENOTE_TEST_EMULATED", "ASAN_OPTIONS"];
        let guest = guests.iter().any(|name| std::env::var_os(name).is_some());
        assert!(guest || now.private <= self.private + 1024, "{self:?} before, {now:?} after");
    }
}
