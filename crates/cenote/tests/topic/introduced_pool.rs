//! Tensors of other pools of the publisher's process: the publisher introduces each pool to its
//! subscribers before it sends.

use std::time::{Duration, Instant};

use cenote::{Tensor, TensorPool, TensorPoolConfig, Topic};

use super::child::numbered_message::{Sample, filled};
use super::child::{LONG, copies, drain, show, subscriber, take, topic};
use super::fork::end_sleeper;
use super::{Role, Test};
use crate::support::peer::{Peer, reply, serve};
use crate::support::{eventually, unique};

pub(crate) const TESTS: &[Test] = &[
    ("tensors_of_introduced_pools_of_a_killed_publisher_arrive", killed),
    ("tensors_of_introduced_pools_arrive_if_the_publisher_disconnects_before_it_dies", dying),
    ("a_late_subscriber_gets_tensors_of_introduced_pools_of_a_killed_publisher", late),
    ("leases_of_a_killed_subscriber_in_introduced_pools_end", killed_holder),
    ("leases_of_a_killed_subscriber_that_had_forked_in_introduced_pools_end", orphaned),
    ("a_live_subscriber_releases_slots_of_introduced_pools", reused),
    ("a_subscriber_attaches_to_pools_beyond_the_introduced_ones", many_pools),
    ("one_pool_is_introduced_through_many_topics", many_topics),
    ("two_topics_introduce_their_pools_to_each_others_subscribers", mutual),
    ("tensors_of_pools_that_were_closed_after_sending_arrive", closed),
];

pub(crate) const ROLES: &[Role] = &[("pool_publisher", pool_publisher)];

/// The most pools that are introduced to one reader.
const MAX_INTRODUCED: usize = 32;

/// Has several pools and topics. Sends a tensor of one pool on all topics, on command.
fn pool_publisher(words: &[&str]) {
    let count = |at: usize| words[at].parse::<usize>().unwrap();
    let pools: Vec<TensorPool> = (0..count(1)).map(|_| pool()).collect();
    let topics: Vec<_> = (0..count(2))
        .map(|n| topic::<Tensor>(&format!("{}.{n}", words[0]), "ignore_own"))
        .collect();
    topics.iter().for_each(|topic| topic.advertise().unwrap());
    serve(|words| match *words {
        ["subscribers"] => {
            topics.iter().for_each(|one| assert_eq!(one.wait_for_subscribers(1, LONG).unwrap(), 1));
            "ok".into()
        }
        ["send", pool, number] => {
            let pool = &pools[pool.parse::<usize>().unwrap()];
            let tensor = filled(pool, number.parse().unwrap()).unwrap();
            reply(topics.iter().try_for_each(|topic| topic.send(&tensor)))
        }
        ["copies"] => copies(&topics[0]),
        ["name", pool] => pools[pool.parse::<usize>().unwrap()].name().to_owned(),
        ["disconnect"] => {
            disconnect();
            "ok".into()
        }
        _ => panic!("{words:?}"),
    });
}

fn pool() -> TensorPool {
    TensorPool::new(unique(), TensorPoolConfig::small()).unwrap()
}

/// Starts a child in that role. Returns the common part of its topics' names, and the child.
fn start(pools: usize, topics: usize) -> (String, Peer) {
    let name = unique();
    let publisher = Peer::start(&format!("pool_publisher {name} {pools} {topics}"));
    (name, publisher)
}

fn killed() {
    let (name, mut publisher) = start(3, 1);
    let topic = topic::<Tensor>(&format!("{name}.0"), "");
    topic.subscribe().unwrap();
    assert_eq!(publisher.request("subscribers"), "ok");
    for number in 0..6 {
        assert_eq!(publisher.request(&format!("send {} {number}", number % 3)), "ok");
    }
    assert_eq!(publisher.request("copies"), "0");
    publisher.kill();
    assert_eq!((take(&topic, 6), topic.missed()), ((0..6).collect(), 0));
}

/// Ends all connections, as the kernel does when a process dies, but while the process still lives.
#[allow(unsafe_code, reason = "shutdown")]
fn disconnect() {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let sockets = fds.filter(|fd| {
        std::fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    });
    for fd in sockets.map(|fd| fd.file_name().to_str().unwrap().parse().unwrap()) {
        // SAFETY: it takes numbers. The descriptor stays open.
        unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
    }
}

/// A subscriber waits some time for the death of a disconnected publisher. A round that takes longer is repeated.
fn dying() {
    let introduced = || {
        let (name, mut publisher) = start(2, 1);
        let topic = topic::<Tensor>(&format!("{name}.0"), "");
        topic.subscribe().unwrap();
        assert_eq!(publisher.request("subscribers"), "ok");
        assert_eq!(
            (publisher.request("send 0 0"), publisher.request("send 1 1")),
            ("ok".into(), "ok".into())
        );
        dies_in_time(&topic, publisher, &[0, 1])
    };
    // A pool beyond the introduced ones, to which the test attaches itself.
    let attached = || {
        let (name, mut publisher) = start(MAX_INTRODUCED + 1, 1);
        let topic = topic::<Tensor>(&format!("{name}.0"), "");
        topic.subscribe().unwrap();
        assert_eq!(publisher.request("subscribers"), "ok");
        for number in 0..MAX_INTRODUCED {
            assert_eq!(publisher.request(&format!("send {number} {number}")), "ok");
            assert_eq!(take(&topic, 1), [number as u64]);
        }
        let _attached =
            TensorPool::open(publisher.request(&format!("name {MAX_INTRODUCED}"))).unwrap();
        assert_eq!(publisher.request(&format!("send {MAX_INTRODUCED} 7")), "ok");
        dies_in_time(&topic, publisher, &[7])
    };
    while !introduced() {}
    while !attached() {}
}

/// Returns whether the publisher died soon enough after it disconnected. Then all its messages arrive.
fn dies_in_time(topic: &Topic<Tensor>, mut publisher: Peer, sent: &[u64]) -> bool {
    let start = Instant::now();
    assert_eq!(publisher.request("disconnect"), "ok");
    std::thread::sleep(Duration::from_millis(50)); // until the subscriber notices
    let mut taken = drain(topic);
    let missed = topic.missed();
    publisher.kill();
    let in_time = start.elapsed() < Duration::from_millis(900);
    if in_time {
        assert_eq!(missed, 0, "{:?}", topic.last_loss());
        taken.extend(take(topic, sent.len() - taken.len()));
        assert_eq!((&*taken, topic.missed()), (sent, 0));
    }
    in_time
}

fn late() {
    let (name, mut publisher) = start(2, 1);
    for number in 0..4 {
        assert_eq!(publisher.request(&format!("send {} {number}", number % 2)), "ok");
    }
    let topic = topic::<Tensor>(&format!("{name}.0"), "history=4");
    topic.subscribe().unwrap();
    assert_eq!(publisher.request("subscribers"), "ok");
    publisher.kill();
    assert_eq!((take(&topic, 4), topic.missed()), (vec![0, 1, 2, 3], 0));
}

fn killed_holder() {
    let (pool, name) = (pool(), unique());
    let publisher = topic::<Tensor>(&name, "depth=1,ignore_own");
    publisher.advertise().unwrap();
    let mut reader = subscriber("tensor", &name, "");
    assert_eq!(publisher.wait_for_subscribers(1, LONG).unwrap(), 1);
    for number in 0..3 {
        publisher.send(&filled(&pool, number).unwrap()).unwrap();
        assert_eq!(reader.request("keep"), "ok");
    }
    let stats = || pool.stats().unwrap();
    // The queue holds the last one, and the reader leases all three.
    assert_eq!((stats().retired, stats().slots_in_use, stats().attachers), (2, 1, 1));
    assert_eq!(reader.request("kept"), "0 1 2");
    reader.kill();
    eventually("its lease row is dropped", || stats().attachers == 0);
    assert_eq!(stats().retired, 0);
}

/// Its connections outlive it, in the cloned process.
fn orphaned() {
    let (pool, name) = (pool(), unique());
    let publisher = topic::<Tensor>(&name, "ignore_own");
    publisher.advertise().unwrap();
    let mut reader = subscriber("tensor", &name, "");
    assert_eq!(publisher.wait_for_subscribers(1, LONG).unwrap(), 1);
    publisher.send(&filled(&pool, 0).unwrap()).unwrap();
    assert_eq!(reader.request("keep"), "ok");
    assert_eq!(pool.stats().unwrap().attachers, 1);
    let sleeper = reader.request("clone").parse().unwrap();
    reader.kill();
    eventually("its lease row is dropped", || pool.stats().unwrap().attachers == 0);
    end_sleeper(sleeper);
}

fn reused() {
    let (name, config) = (unique(), TensorPoolConfig { max_slots: 4, ..TensorPoolConfig::small() });
    let pool = TensorPool::new(unique(), config).unwrap();
    let publisher = topic::<Tensor>(&name, "depth=1,ignore_own");
    publisher.advertise().unwrap();
    let mut reader = subscriber("tensor", &name, "");
    assert_eq!(publisher.wait_for_subscribers(1, LONG).unwrap(), 1);
    for number in 0..100 {
        publisher.send(&filled(&pool, number).unwrap()).unwrap();
        assert_eq!(reader.request("take 1"), show(&[number]));
    }
    assert_eq!((publisher.stats().copies, pool.stats().unwrap().attachers), (vec![], 1));
}

fn many_pools() {
    let (name, mut publisher) = start(MAX_INTRODUCED + 2, 1);
    let topic = topic::<Tensor>(&format!("{name}.0"), "");
    topic.subscribe().unwrap();
    assert_eq!(publisher.request("subscribers"), "ok");
    for number in 0..MAX_INTRODUCED + 2 {
        assert_eq!(publisher.request(&format!("send {number} {number}")), "ok");
        assert_eq!(take(&topic, 1), [number as u64]);
    }
    assert_eq!(topic.missed(), 0);
    publisher.kill();
}

/// More topics than a process may have connections to one pool.
fn many_topics() {
    let (name, mut publisher) = start(1, 70);
    let topics: Vec<_> = (0..70).map(|n| topic::<Tensor>(&format!("{name}.{n}"), "")).collect();
    topics.iter().for_each(|topic| topic.subscribe().unwrap());
    assert_eq!(publisher.request("subscribers"), "ok");
    assert_eq!(publisher.request("send 0 7"), "ok");
    for topic in &topics {
        assert_eq!((take(topic, 1), topic.missed()), (vec![7], 0));
    }
    publisher.kill();
}

fn mutual() {
    let (one, other) = (topic::<Tensor>(&unique(), "ignore_own"), topic(&unique(), "ignore_own"));
    let (mut of_one, mut of_other) =
        (subscriber("tensor", one.name(), ""), subscriber("tensor", other.name(), ""));
    for publisher in [&one, &other] {
        publisher.advertise().unwrap();
        assert_eq!(publisher.wait_for_subscribers(1, LONG).unwrap(), 1);
    }
    for number in 0..20 {
        other.send(&Tensor::of(&one, number).unwrap()).unwrap();
        one.send(&Tensor::of(&other, number).unwrap()).unwrap();
        assert_eq!(of_one.request("take 1"), show(&[number]));
        assert_eq!(of_other.request("take 1"), show(&[number]));
    }
    // Each pool is read by its own subscriber and by that of the other.
    let attachers = |topic: &Topic<Tensor>| topic.pool().unwrap().stats().unwrap().attachers;
    assert_eq!((attachers(&one), attachers(&other)), (2, 2));
}

fn closed() {
    let publisher = topic::<Tensor>(&unique(), "ignore_own");
    publisher.advertise().unwrap();
    let mut reader = subscriber("tensor", publisher.name(), "");
    assert_eq!(publisher.wait_for_subscribers(1, LONG).unwrap(), 1);
    for number in 0..20 {
        let pool = pool();
        publisher.send(&filled(&pool, number).unwrap()).unwrap();
        drop(pool);
        // The memory stays while a subscriber may need it.
        assert_eq!(reader.request("take 1"), show(&[number]));
    }
    assert_eq!(publisher.stats().copies, []);
}
