//! How many messages a queue keeps, and how dropped messages are counted.

use cenote::{DType, Tensor, TensorMemory, TensorOptions, TensorPoolConfig, Topic, TopicConfig};

use super::Test;
use super::child::{
    LONG, drain, publisher, range, send, subscriber, take, topic, wait_for_publishers,
};
use crate::support::unique;

pub(crate) const TESTS: &[Test] = &[
    ("every_queued_message_is_received", exact),
    ("a_slow_subscriber_counts_exactly_what_it_missed", missed),
    ("a_subscriber_that_never_receives_holds_nothing", never),
    ("a_queue_drops_its_oldest_messages_for_the_next", gives_way),
    ("a_leased_slot_is_not_reused", held),
    ("the_latest_message_skips_the_others", latest),
    ("sequences_wrap_around", wrap),
];

fn connected() -> (String, String) {
    ("1".into(), "ok".into())
}

fn exact() {
    for depth in [1, 3, 10, 16] {
        for kind in ["u64", "tensor"] {
            let name = unique();
            let mut subscriber = subscriber(kind, &name, "");
            let mut publisher = publisher(kind, &name, &format!("depth={depth}"));
            assert_eq!(
                (publisher.request("subscribers 1"), subscriber.request("connected 1")),
                connected()
            );
            let take = format!("take {depth}");
            for round in 0..5 {
                let numbers = round * depth..(round + 1) * depth;
                let send = format!("send {} {}", numbers.start, numbers.end);
                assert_eq!(publisher.request(&send), "ok");
                assert_eq!(subscriber.request(&take), range(numbers), "{depth} {kind}");
                assert_eq!(subscriber.request("recv"), "none");
            }
            assert_eq!(subscriber.request("missed"), "0");
            // One more than the queue keeps.
            assert_eq!(publisher.request(&format!("send 0 {}", depth + 1)), "ok");
            assert_eq!(subscriber.request(&take), range(1..depth + 1));
            assert_eq!(subscriber.request("missed"), "1");
        }
    }
}

fn missed() {
    let name = unique();
    let (mut slow, mut quick) = (subscriber("tensor", &name, ""), subscriber("tensor", &name, ""));
    let topic: Topic<Tensor> = topic(&name, "depth=4,ignore_own");
    assert_eq!(topic.wait_for_subscribers(2, LONG).unwrap(), 2);
    assert_eq!(slow.request("connected 1"), "ok");
    let (mut sent, mut lost) = (0, 0);
    for burst in [1, 4, 5, 3, 17, 2, 100] {
        for number in sent..sent + burst {
            send(&topic, number).unwrap();
            assert_eq!(quick.request("take 1"), number.to_string());
        }
        sent += burst;
        lost += burst.saturating_sub(4);
        assert_eq!(
            slow.request(&format!("take {}", burst.min(4))),
            range(sent - burst.min(4)..sent)
        );
        assert_eq!(slow.request("missed"), lost.to_string());
    }
    assert_eq!(
        (quick.request("missed"), quick.request("received")),
        ("0".into(), sent.to_string())
    );
}

/// Ten thousand messages from a pool with six slots.
fn never() {
    let name = unique();
    let mut idle: Vec<_> = (0..3).map(|_| subscriber("tensor", &name, "")).collect();
    let topic: Topic<Tensor> = topic(&name, "depth=4,slots=6,ignore_own");
    assert_eq!(topic.wait_for_subscribers(3, LONG).unwrap(), 3);
    (0..10_000).for_each(|number| send(&topic, number).unwrap());
    for subscriber in &mut idle {
        assert_eq!(subscriber.request("connected 1"), "ok");
        assert_eq!(subscriber.request("take 4"), range(9_996..10_000));
        assert_eq!(subscriber.request("missed"), "9996");
    }
    drop(idle);
    assert!(topic.pool().unwrap().stats().unwrap().slots_in_use <= 5);
}

fn held() {
    let name = unique();
    let mut holder = subscriber("tensor", &name, "");
    let topic: Topic<Tensor> = topic(&name, "depth=2,slots=8,ignore_own");
    assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
    for number in 0..3 {
        send(&topic, number).unwrap();
        assert_eq!(holder.request("keep"), "ok");
    }
    (3..1000).for_each(|number| send(&topic, number).unwrap());
    assert_eq!(holder.request("kept"), "0 1 2");
    holder.kill();
    let free = |_| Tensor::clone(&topic.alloc_tensor(&[10], DType::U8).unwrap());
    let all: Vec<Tensor> = (0..6).map(free).collect();
    assert_eq!(all.len(), 6, "all except the two that are queued");
}

fn latest() {
    let name = unique();
    let mut publisher = publisher("u64", &name, "");
    let topic = topic::<u64>(&name, "");
    topic.subscribe().unwrap();
    assert_eq!(publisher.request("subscribers 1"), "1");
    wait_for_publishers(&topic, 1);
    assert_eq!(topic.latest(), None);
    assert_eq!(publisher.request("send 0 7"), "ok");
    assert_eq!((topic.latest(), topic.latest()), (Some(6), None));
    assert_eq!(publisher.request("send 7 9"), "ok");
    assert_eq!(take(&topic, 2), [7, 8], "nothing else is skipped");
    assert_eq!(topic.missed(), 0, "skipped messages do not count as missed");
}

fn wrap() {
    let around = [u64::MAX - 5, u64::MAX / 2 - 5, u64::MAX, 1 << 63, (1 << 63) - 1];
    for first in around {
        for (kind, depth) in [("u64", 3), ("tensor", 3), ("u64", 8), ("tensor", 16)] {
            let name = unique();
            let mut publisher = publisher(kind, &name, &format!("first={first},depth={depth}"));
            assert_eq!(publisher.request("send 0 2"), "ok");
            let mut late = subscriber(kind, &name, "history=100");
            let mut slow = subscriber(kind, &name, "");
            assert_eq!(publisher.request("subscribers 2"), "2");
            assert_eq!(
                (late.request("take 2"), slow.request("connected 1")),
                ("0 1".into(), "ok".into())
            );
            for number in 2..20 {
                assert_eq!(publisher.request(&format!("send {number} {}", number + 1)), "ok");
                assert_eq!(late.request("take 1"), number.to_string(), "{first} {kind} {depth}");
            }
            assert_eq!(late.request("missed"), "0");
            let kept = depth.min(18);
            assert_eq!(slow.request(&format!("take {kept}")), range(20 - kept..20));
            assert_eq!(slow.request("missed"), (18 - kept).to_string());
        }
    }
    let own = topic::<u64>(&unique(), &format!("first={},depth=3", u64::MAX - 1));
    (0..2).for_each(|number| send(&own, number).unwrap());
    assert_eq!(drain(&own), [0, 1]);
    (2..10).for_each(|number| send(&own, number).unwrap());
    assert_eq!((drain(&own), own.missed(), own.stats().sent), (vec![7, 8, 9], 5, 10));
}

/// The ring would hold more tensors than the pool has slots for.
fn gives_way() {
    // Four messages fill the pool.
    let pool = TensorPoolConfig { pool_size: 16384, growth: 16384, ..TensorPoolConfig::small() };
    let topic: Topic<Tensor> =
        Topic::with_config(&unique(), TopicConfig { pool, ..TopicConfig::default() }).unwrap();
    let heap = TensorOptions::new().memory(TensorMemory::Mem);
    for number in 0..20_u64 {
        let mut tensor = match number % 2 {
            0 => topic.alloc_tensor(&[512], DType::U64).unwrap(),
            _ => heap.clone().create(&[512], DType::U64).unwrap(),
        };
        tensor.map_mut().unwrap().as_mut_slice::<u64>().unwrap()[0] = number;
        topic.send(&tensor).unwrap();
    }
    let received: Vec<u64> = std::iter::from_fn(|| topic.recv())
        .map(|tensor| tensor.to_vec::<u64>().unwrap()[0])
        .collect();
    assert!(!received.is_empty() && received.is_sorted());
    assert_eq!(received.last(), Some(&19));
    assert_eq!(received.len() as u64 + topic.missed(), 20);
    assert!(topic.missed() >= 16, "{}", topic.missed());
}
