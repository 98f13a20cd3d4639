//! Tensors of other pools of a publisher's process: they are lent to its subscribers before they are sent.

use std::time::{Duration, Instant};

use cenote::{Tensor, TensorPool, TensorPoolConfig, Topic};

use super::fork::end_sleeper;
use super::sample::{Sample, filled};
use super::talk::{LONG, copies, drain, show, subscriber, take, topic};
use super::{Role, Test};
use crate::support::peer::{Peer, reply, serve};
use crate::support::{eventually, unique};

pub(crate) const TESTS: &[Test] = &[
    ("what_lies_in_other_pools_of_a_killed_publisher_arrives", killed),
    ("what_lies_in_other_pools_of_a_publisher_that_hangs_up_before_it_dies_arrives", dying),
    ("a_late_joiner_has_what_lies_in_other_pools_of_a_killed_publisher", late),
    ("a_killed_subscriber_gives_back_slots_of_pools_that_were_lent", given_back),
    ("a_killed_subscriber_that_had_forked_gives_back_slots_of_pools_that_were_lent", orphaned),
    ("a_subscriber_that_lives_gives_back_slots_of_pools_that_were_lent", reused),
    ("pools_beyond_those_that_are_lent_are_attached_to", many_pools),
    ("one_pool_is_lent_by_way_of_many_topics", many_topics),
    ("two_topics_that_lend_to_each_other", mutual),
    ("what_lies_in_pools_that_were_closed_since_arrives", closed),
];

pub(crate) const ROLES: &[Role] = &[("lender", lender)];

/// The pools that are lent to one attacher.
const MAX_LENT: usize = 32;

/// Sends what lies in one of its pools, by number, on each of its topics.
fn lender(words: &[&str]) {
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
        ["hang_up"] => {
            hang_up();
            "ok".into()
        }
        _ => panic!("{words:?}"),
    });
}

fn pool() -> TensorPool {
    TensorPool::new(unique(), TensorPoolConfig::small()).unwrap()
}

/// The name of the topics of a lender, and the lender.
fn start(pools: usize, topics: usize) -> (String, Peer) {
    let name = unique();
    let lender = Peer::start(&format!("lender {name} {pools} {topics}"));
    (name, lender)
}

fn killed() {
    let (name, mut lender) = start(3, 1);
    let topic = topic::<Tensor>(&format!("{name}.0"), "");
    topic.subscribe().unwrap();
    assert_eq!(lender.request("subscribers"), "ok");
    for number in 0..6 {
        assert_eq!(lender.request(&format!("send {} {number}", number % 3)), "ok");
    }
    assert_eq!(lender.request("copies"), "0");
    lender.kill();
    assert_eq!((take(&topic, 6), topic.missed()), ((0..6).collect(), 0));
}

/// Ends all connections, as the kernel does for a process that dies, which it is not known to do yet.
#[allow(unsafe_code, reason = "shutdown")]
fn hang_up() {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let sockets = fds.filter(|fd| {
        std::fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    });
    for fd in sockets.map(|fd| fd.file_name().to_str().unwrap().parse().unwrap()) {
        // SAFETY: it takes numbers. The descriptor stays open.
        unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
    }
}

/// Whoever receives meanwhile waits for its end, though not for ever: a round that takes too long is played again.
fn dying() {
    let lent = || {
        let (name, mut lender) = start(2, 1);
        let topic = topic::<Tensor>(&format!("{name}.0"), "");
        topic.subscribe().unwrap();
        assert_eq!(lender.request("subscribers"), "ok");
        assert_eq!(
            (lender.request("send 0 0"), lender.request("send 1 1")),
            ("ok".into(), "ok".into())
        );
        dies_in_time(&topic, lender, &[0, 1])
    };
    // One that was not lent, and is attached to for another reason.
    let known = || {
        let (name, mut lender) = start(MAX_LENT + 1, 1);
        let topic = topic::<Tensor>(&format!("{name}.0"), "");
        topic.subscribe().unwrap();
        assert_eq!(lender.request("subscribers"), "ok");
        for number in 0..MAX_LENT {
            assert_eq!(lender.request(&format!("send {number} {number}")), "ok");
            assert_eq!(take(&topic, 1), [number as u64]);
        }
        let _attached = TensorPool::open(lender.request(&format!("name {MAX_LENT}"))).unwrap();
        assert_eq!(lender.request(&format!("send {MAX_LENT} 7")), "ok");
        dies_in_time(&topic, lender, &[7])
    };
    while !lent() {}
    while !known() {}
}

/// Whether a lender dies soon enough after it hung up. Then all that it sent arrives.
fn dies_in_time(topic: &Topic<Tensor>, mut lender: Peer, sent: &[u64]) -> bool {
    let start = Instant::now();
    assert_eq!(lender.request("hang_up"), "ok");
    std::thread::sleep(Duration::from_millis(50)); // to be noticed
    let mut taken = drain(topic);
    let missed = topic.missed();
    lender.kill();
    let in_time = start.elapsed() < Duration::from_millis(900);
    if in_time {
        assert_eq!(missed, 0, "{:?}", topic.last_loss());
        taken.extend(take(topic, sent.len() - taken.len()));
        assert_eq!((&*taken, topic.missed()), (sent, 0));
    }
    in_time
}

fn late() {
    let (name, mut lender) = start(2, 1);
    for number in 0..4 {
        assert_eq!(lender.request(&format!("send {} {number}", number % 2)), "ok");
    }
    let topic = topic::<Tensor>(&format!("{name}.0"), "history=4");
    topic.subscribe().unwrap();
    assert_eq!(lender.request("subscribers"), "ok");
    lender.kill();
    assert_eq!((take(&topic, 4), topic.missed()), (vec![0, 1, 2, 3], 0));
}

fn given_back() {
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
    // The queue has the last, and all are the reader's.
    assert_eq!((stats().retired, stats().slots_in_use, stats().attachers), (2, 1, 1));
    assert_eq!(reader.request("kept"), "0 1 2");
    reader.kill();
    eventually("its row is dropped", || stats().attachers == 0);
    assert_eq!(stats().retired, 0);
}

/// Its connections outlive it.
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
    eventually("its row is dropped", || pool.stats().unwrap().attachers == 0);
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
    let (name, mut lender) = start(MAX_LENT + 2, 1);
    let topic = topic::<Tensor>(&format!("{name}.0"), "");
    topic.subscribe().unwrap();
    assert_eq!(lender.request("subscribers"), "ok");
    for number in 0..MAX_LENT + 2 {
        assert_eq!(lender.request(&format!("send {number} {number}")), "ok");
        assert_eq!(take(&topic, 1), [number as u64]);
    }
    assert_eq!(topic.missed(), 0);
    lender.kill();
}

/// More than one process may have connections.
fn many_topics() {
    let (name, mut lender) = start(1, 70);
    let topics: Vec<_> = (0..70).map(|n| topic::<Tensor>(&format!("{name}.{n}"), "")).collect();
    topics.iter().for_each(|topic| topic.subscribe().unwrap());
    assert_eq!(lender.request("subscribers"), "ok");
    assert_eq!(lender.request("send 0 7"), "ok");
    for topic in &topics {
        assert_eq!((take(topic, 1), topic.missed()), (vec![7], 0));
    }
    lender.kill();
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
    // Each has its own subscriber, and the other's.
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
        // It stays for as long as somebody may need it.
        assert_eq!(reader.request("take 1"), show(&[number]));
    }
    assert_eq!(publisher.stats().copies, []);
}
