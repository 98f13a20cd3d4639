//! Policies: what `send` does when the queue of a slow subscriber is full.

use std::path::Path;
use std::time::{Duration, Instant};

use cenote::{
    DType, Error, Policy, Tensor, TensorMemory, TensorPool, TensorPoolConfig, Topic, TopicConfig,
};

use super::Test;
use super::child::{LONG, config, drain, publisher, range, send, subscriber, take, topic};
use crate::support::{eventually, unique};

pub(crate) const TESTS: &[Test] = &[
    ("blocking_waits_for_the_slowest_and_loses_nothing", block),
    ("blocking_gives_up_and_names_the_slow_subscriber", timeout),
    ("blocking_ends_when_the_slow_subscriber_is_killed", killed),
    ("blocking_ends_when_a_message_is_taken", taken),
    ("a_full_queue_rejects_and_names_the_slow_subscriber", reject),
    ("a_rejected_tensor_is_not_copied_first", not_copied),
    ("try_send_never_waits", try_send),
    ("send_timeout_waits_no_longer_than_its_timeout", send_timeout),
    ("a_topic_waits_for_itself_too", own),
    ("a_stopped_subscriber_does_not_slow_others", stopped),
    ("a_blocking_or_rejecting_queue_drops_only_messages_that_all_received", all_taken),
    ("queued_messages_of_another_pool_are_not_dropped_for_memory", elsewhere),
];

/// Asserts that the error names this slow subscriber. Returns how long `send` waited.
fn blamed(sent: cenote::Result<()>, pid: u32) -> Duration {
    let error = sent.expect_err("there was no room");
    let text = error.to_string();
    let Error::SlowSubscriber { pid: slow, program, waited, .. } = error else { panic!("{text}") };
    assert_eq!(slow, pid.cast_signed());
    let ours = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    // The kernel keeps fifteen characters of a name.
    assert!(
        !program.is_empty() && ours.starts_with(&program[..program.len().min(15)]),
        "{program}"
    );
    assert!(text.contains(&pid.to_string()) && text.contains(&program), "{text}");
    waited
}

fn block() {
    for (kind, depth) in [("u64", 1), ("u64", 3), ("tensor", 3), ("tensor", 16)] {
        let name = unique();
        let mut subscribers: Vec<_> = (0..2).map(|_| subscriber(kind, &name, "")).collect();
        let mut publisher = publisher(kind, &name, &format!("depth={depth},wait"));
        assert_eq!(publisher.request("subscribers 2"), "2");
        publisher.write_line("send 0 500");
        subscribers.iter_mut().for_each(|subscriber| subscriber.write_line("take 500"));
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.read_line(), range(0..500));
            assert_eq!(subscriber.request("missed"), "0");
        }
        assert_eq!(publisher.read_line(), "ok");
    }
}

fn timeout() {
    let name = unique();
    let mut quick = subscriber("tensor", &name, "");
    let topic: Topic<Tensor> = topic(&name, "depth=3,block=30,ignore_own");
    assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
    let mut slow = subscriber("tensor", &name, "");
    assert_eq!(topic.wait_for_subscribers(2, LONG).unwrap(), 2);
    assert_eq!(slow.request("connected 1"), "ok");
    (0..3).for_each(|number| send(&topic, number).unwrap());
    assert_eq!(quick.request("take 3"), "0 1 2");
    let start = Instant::now();
    let waited = blamed(send(&topic, 3), slow.pid());
    assert!(start.elapsed() >= waited && waited == Duration::from_millis(30));
    // No subscriber got the message that failed, and all others arrive.
    assert_eq!((quick.request("recv"), slow.request("take 3")), ("none".into(), "0 1 2".into()));
    assert_eq!(slow.request("recv"), "none");
    send(&topic, 4).unwrap();
    assert_eq!((quick.request("take 1"), slow.request("take 1")), ("4".into(), "4".into()));
    assert_eq!((topic.stats().sent, slow.request("missed")), (4, "0".into()));
}

fn killed() {
    let name = unique();
    let topic: Topic<u64> = topic(&name, "depth=2,wait,ignore_own");
    for _ in 0..5 {
        let slow = subscriber("u64", &name, "");
        assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
        (0..2).for_each(|number| send(&topic, number).unwrap());
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send(&topic, 2));
            slow.kill();
            sender.join().unwrap().unwrap();
        });
        eventually("the subscriber is disconnected", || topic.stats().subscribers == 0);
    }
}

fn taken() {
    let name = unique();
    let topic: Topic<u64> = topic(&name, "depth=2,wait,ignore_own");
    let mut slow = subscriber("u64", &name, "");
    assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
    (0..2).for_each(|number| send(&topic, number).unwrap());
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&topic, 2));
        assert_eq!(slow.request("take 3"), "0 1 2");
        sender.join().unwrap().unwrap();
    });
}

fn reject() {
    let name = unique();
    let topic: Topic<Tensor> = topic(&name, "depth=3,reject,ignore_own");
    let mut slow = subscriber("tensor", &name, "");
    assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
    assert_eq!(slow.request("connected 1"), "ok");
    (0..3).for_each(|number| send(&topic, number).unwrap());
    assert_eq!(blamed(send(&topic, 3), slow.pid()), Duration::ZERO);
    assert_eq!(slow.request("take 1"), "0");
    send(&topic, 4).unwrap();
    blamed(send(&topic, 5), slow.pid());
    assert_eq!((slow.request("take 3"), slow.request("missed")), ("1 2 4".into(), "0".into()));
    assert_eq!(slow.request("recv"), "none");
    // Without subscribers nothing is rejected.
    slow.kill();
    eventually("the subscriber is disconnected", || topic.stats().subscribers == 0);
    (0..20).for_each(|number| send(&topic, number).unwrap());
}

fn send_timeout() {
    let name = unique();
    let slow = subscriber("u64", &name, "");
    let topic: Topic<u64> = topic(&name, "depth=1,wait,ignore_own");
    assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
    topic.send_timeout(&1, LONG).unwrap();
    let (start, timeout) = (Instant::now(), Duration::from_millis(30));
    assert_eq!(blamed(topic.send_timeout(&2, timeout), slow.pid()), timeout);
    assert!(start.elapsed() >= timeout);

    let name = unique();
    let keep: Topic<u64> = self::topic(&name, "depth=1");
    (0..5).for_each(|number| keep.send_timeout(&number, Duration::ZERO).unwrap());
}

fn try_send() {
    let name = unique();
    let topic: Topic<u64> = Topic::with_config(
        &name,
        TopicConfig { policy: Policy::Block(LONG), ..config("depth=1,ignore_own") },
    )
    .unwrap();
    let slow = subscriber("u64", &name, "");
    assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
    topic.try_send(&1).unwrap();
    blamed(topic.try_send(&2), slow.pid());
    // With keep-last it never waits.
    let keep = super::child::topic::<u64>(&unique(), "depth=1");
    (0..5).for_each(|number| keep.try_send(&number).unwrap());
    assert_eq!((drain(&keep), keep.missed()), (vec![4], 4));
}

fn all_taken() {
    let (slots, depth) = (20, 16);
    for policy in [Policy::Block(LONG), Policy::Reject] {
        let mut config = TopicConfig { policy, depth, ..TopicConfig::default() };
        config.pool.max_slots = slots;
        let large = config.pool.pool_size + 1;
        let topic: Topic<Tensor> = Topic::with_config(&unique(), config).unwrap();
        topic.subscribe().unwrap();
        let send = |_| topic.send(&topic.alloc_tensor(&[64], DType::U8)?);
        let mut held = Vec::new();
        for n in 0..100 {
            send(n).unwrap();
            held.extend(topic.recv().filter(|_| n < 4));
        }
        assert_eq!((held.len(), topic.missed()), (4, 0));
        let failures = || topic.pool().unwrap().stats().unwrap().failures;
        assert_eq!(failures(), 0, "the pool was full, and no allocation failed");
        // A tensor that can never fit drops no message.
        assert!(topic.alloc_tensor(&[large], DType::U8).is_err() && failures() == 1);
        // Messages that a subscriber has not received are not dropped: they fill the remaining slots.
        (0..16).try_for_each(send).unwrap();
        let refused = topic.alloc_tensor(&[64], DType::U8);
        assert!(matches!(refused, Err(Error::PoolFull { .. })), "{refused:?}");
        assert_eq!((std::iter::from_fn(|| topic.recv()).count(), topic.missed()), (16, 0));
    }
}

fn elsewhere() {
    let mut config = TopicConfig { depth: 3, ..TopicConfig::default() };
    config.pool.max_slots = 4;
    let topic: Topic<Tensor> = Topic::with_config(&unique(), config).unwrap();
    topic.subscribe().unwrap();
    let other = TensorPool::new(unique(), TensorPoolConfig::small()).unwrap();
    for _ in 0..3 {
        topic.send(&other.alloc(&[64], DType::U8).unwrap()).unwrap();
    }
    let held: Vec<_> = (0..4).map(|_| topic.alloc_tensor(&[64], DType::U8).unwrap()).collect();
    let refused = topic.send(&Tensor::from_vec(vec![1_u8; 64], &[64]).unwrap());
    assert!(matches!(refused, Err(Error::PoolFull { .. })), "{refused:?}");
    assert_eq!(
        (std::iter::from_fn(|| topic.recv()).count(), topic.missed(), held.len()),
        (3, 0, 4)
    );
}

fn own() {
    let rejecting = topic::<u64>(&unique(), "depth=2,reject");
    rejecting.subscribe().unwrap();
    (0..2).for_each(|number| send(&rejecting, number).unwrap());
    blamed_itself(send(&rejecting, 2));
    assert_eq!(rejecting.recv(), Some(0));
    send(&rejecting, 3).unwrap();
    blamed_itself(send(&rejecting, 4));
    assert_eq!((drain(&rejecting), rejecting.missed()), (vec![1, 3], 0));
    // A topic that has not subscribed does not wait for itself.
    let unsubscribed = topic::<u64>(&unique(), "depth=2,reject");
    (0..10).for_each(|number| send(&unsubscribed, number).unwrap());
    let ignoring = topic::<u64>(&unique(), "depth=2,reject,ignore_own");
    ignoring.subscribe().unwrap();
    (0..10).for_each(|number| send(&ignoring, number).unwrap());
    // One thread sends, another receives.
    let topic = topic::<Tensor>(&unique(), "depth=2,wait");
    topic.subscribe().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..200).for_each(|number| send(&topic, number).unwrap()));
        assert_eq!(take(&topic, 200), (0..200).collect::<Vec<_>>());
    });
    assert_eq!(topic.missed(), 0);
}

fn not_copied() {
    let topic = topic::<Tensor>(&unique(), "depth=2,reject");
    topic.subscribe().unwrap();
    let heap = Tensor::options().memory(TensorMemory::Mem).create(&[1000], DType::U64).unwrap();
    (0..2).for_each(|_| topic.send(&heap).unwrap());
    let error = topic.send(&heap).unwrap_err();
    assert!(matches!(error, Error::SlowSubscriber { .. }), "{error}");
    assert!(error.to_string().ends_with("has not taken its messages"), "{error}");
    assert_eq!(topic.stats().copies[0].count, 2);
}

fn blamed_itself(sent: cenote::Result<()>) {
    let error = sent.expect_err("there was no room");
    let Error::SlowSubscriber { pid, .. } = error else { panic!("{error}") };
    assert_eq!(pid, std::process::id().cast_signed());
}

/// A subscriber is stopped while it sleeps.
fn stopped() {
    let name = unique();
    let topic: Topic<Tensor> = topic(&name, "depth=4,slots=8,ignore_own");
    let mut asleep = subscriber("tensor", &name, "");
    let mut quick = subscriber("tensor", &name, "");
    assert_eq!(topic.wait_for_subscribers(2, LONG).unwrap(), 2);
    assert_eq!(
        (asleep.request("connected 1"), quick.request("connected 1")),
        ("ok".into(), "ok".into())
    );
    asleep.write_line("wait");
    eventually("it sleeps", || is_asleep(asleep.pid()));
    asleep.signal(libc::SIGSTOP);
    for number in 0..2000 {
        send(&topic, number).unwrap();
        if number % 100 == 0 {
            eventually("it has the latest", || quick.request("latest") == number.to_string());
        }
    }
    // Other subscribers can still connect and receive.
    let mut late = subscriber("tensor", &name, "history=4");
    assert_eq!(late.request("take 4"), range(1996..2000));
    asleep.signal(libc::SIGCONT);
    let first: u64 = asleep.read_line().parse().unwrap();
    assert_eq!((first, asleep.request("take 3")), (1996, range(1997..2000)));
    assert_eq!(asleep.request("missed"), "1996");
}

/// Whether all threads of a process sleep.
pub(crate) fn is_asleep(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.into_iter().all(|task| sleeps(&task.unwrap().path()))
}

/// Whether the thread with this `/proc` directory sleeps.
pub(crate) fn sleeps(task: &Path) -> bool {
    let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}
