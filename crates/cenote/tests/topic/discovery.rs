//! Publishers and subscribers find each other: early, late, killed, or without descriptors.

use std::time::Duration;

use cenote::{Tensor, Topic};

use super::child::numbered_message::Sample;
use super::child::{LONG, drain, peer, publisher, range, send, show, subscriber, take, topic};
use super::{Role, Test};
use crate::support::peer::{Peer, reply, serve};
use crate::support::{eventually, rounds, unique};

pub(crate) const TESTS: &[Test] = &[
    ("a_subscriber_that_was_first_gets_the_first_message", first),
    ("a_late_subscriber_gets_the_history_it_requested", history),
    ("a_late_subscriber_gets_no_more_history_than_is_kept", short_history),
    ("a_late_subscriber_that_requests_no_history_gets_only_new_messages", no_history),
    ("a_message_sent_right_before_an_exit_arrives", exit),
    ("a_message_sent_right_before_a_kill_arrives", kill),
    ("a_message_sent_before_the_topic_was_dropped_arrives", dropped),
    ("a_publisher_that_closes_at_once_is_received_from", closes),
    ("a_publisher_whose_socket_vanishes_is_received_from_once", vanished),
    ("a_publisher_that_was_killed_is_replaced_by_the_next", replaced),
    ("segments_made_after_subscribing_arrive", segments),
    ("sixty_four_subscribers_of_one_publisher", many),
    ("publishers_and_subscribers_that_start_at_once_all_connect", at_once),
    ("a_publisher_counts_its_subscribers", counted),
    ("a_subscriber_that_was_without_descriptors_connects_once_it_has_some", poor),
];

pub(crate) const ROLES: &[Role] = &[("four_topics", four_topics)];

fn first() {
    for kind in ["u64", "tensor"] {
        let name = unique();
        let mut subscribers: Vec<Peer> = (0..3).map(|_| subscriber(kind, &name, "")).collect();
        let mut publisher = peer(kind, &name, "");
        // The publisher does not wait for its subscribers.
        assert_eq!(publisher.request("send 0 3"), "ok");
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.request("take 3"), "0 1 2");
        }
    }
}

fn history() {
    let name = unique();
    let mut publisher = publisher("tensor", &name, "");
    assert_eq!(publisher.request("send 0 12"), "ok");
    let late = topic::<Tensor>(&name, "history=5");
    assert_eq!(take(&late, 5), [7, 8, 9, 10, 11]);
    assert_eq!(publisher.request("send 12 14"), "ok");
    assert_eq!((take(&late, 2), late.missed()), (vec![12, 13], 0));
}

fn short_history() {
    let name = unique();
    let mut publisher = publisher("u64", &name, "depth=4");
    assert_eq!(publisher.request("send 0 3"), "ok");
    let early = topic::<u64>(&name, "history=1000");
    assert_eq!(take(&early, 3), [0, 1, 2]);
    assert_eq!(publisher.request("send 3 50"), "ok");
    let late = topic::<u64>(&name, "history=1000");
    assert_eq!((take(&late, 4), late.missed()), (vec![46, 47, 48, 49], 0));
}

fn no_history() {
    let name = unique();
    let mut publisher = publisher("u64", &name, "");
    assert_eq!(publisher.request("send 0 3"), "ok");
    let late = topic::<u64>(&name, "");
    late.subscribe().unwrap();
    assert_eq!(publisher.request("subscribers 1"), "1");
    assert_eq!(publisher.request("send 3 5"), "ok");
    assert_eq!((take(&late, 2), late.missed()), (vec![3, 4], 0));
}

fn exit() {
    for _ in 0..rounds(25) {
        exits::<Tensor>("tensor");
        exits::<u64>("u64");
    }
}

/// The child sends as soon as it has this subscriber, and exits at once.
fn exits<T: Sample>(kind: &str) {
    let name = unique();
    let mut publisher = publisher(kind, &name, "");
    let topic = topic::<T>(&name, "");
    topic.subscribe().unwrap();
    assert_eq!(publisher.request("subscribers 1"), "1");
    publisher.write_line("send 0 1");
    publisher.write_line("exit");
    assert!(publisher.finish().success());
    assert_eq!(take(&topic, 1), [0], "missed {}: {:?}", topic.missed(), topic.last_loss());
    assert_eq!((drain(&topic), topic.missed()), (vec![], 0));
}

fn kill() {
    for _ in 0..rounds(10) {
        let name = unique();
        let mut publisher = publisher("tensor", &name, "");
        let topic = topic::<Tensor>(&name, "");
        topic.subscribe().unwrap();
        assert_eq!(publisher.request("subscribers 1"), "1");
        assert_eq!(publisher.request("send 0 5"), "ok");
        publisher.kill();
        assert_eq!(take(&topic, 5), [0, 1, 2, 3, 4]);
        eventually("the publisher is disconnected", || topic.stats().publishers == 0);
        assert_eq!((drain(&topic), topic.missed()), (vec![], 0));
    }
}

/// The publisher ends, and its process continues.
fn dropped() {
    let name = unique();
    let mut publisher = publisher("tensor", &name, "");
    let topic = topic::<Tensor>(&name, "");
    topic.subscribe().unwrap();
    assert_eq!(publisher.request("subscribers 1"), "1");
    assert_eq!(publisher.request("send 0 5"), "ok");
    assert_eq!(publisher.request("drop"), "ok");
    assert_eq!(take(&topic, 5), [0, 1, 2, 3, 4]);
    assert!(topic.recv().is_none());
    eventually("the publisher is disconnected", || {
        topic.recv().is_none() && topic.stats().publishers == 0
    });
}

/// The publisher closes before its subscriber has finished the handshake.
fn closes() {
    for kind in ["u64", "tensor"].repeat(rounds(15)) {
        let name = unique();
        let mut subscriber = subscriber(kind, &name, "");
        let mut publisher = peer(kind, &name, "");
        for line in ["subscribers 1", "send 0 2", "drop"] {
            publisher.write_line(line);
        }
        assert_eq!(subscriber.request("take 2"), "0 1");
    }
}

fn sockets(name: &str) -> Vec<std::path::PathBuf> {
    let dir = std::path::PathBuf::from(std::env::var_os("CENOTE_DIR").unwrap());
    // The last process that leaves removes the directory.
    let entries = std::fs::read_dir(dir.join("default/topics").join(name)).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().contains('@')).collect()
}

fn vanished() {
    let name = unique();
    let mut publisher = publisher("u64", &name, "");
    let topic = topic::<u64>(&name, "");
    topic.subscribe().unwrap();
    assert_eq!(publisher.request("subscribers 1"), "1");
    assert_eq!(publisher.request("send 0 3"), "ok");
    let [socket] = &sockets(&name)[..] else { panic!("not one publisher") };
    std::fs::remove_file(socket).unwrap();
    eventually("the socket exists again", || socket.exists());
    // A new subscriber finds the publisher; the connected one does not receive from it twice.
    let mut late = subscriber("u64", &name, "");
    assert_eq!(publisher.request("subscribers 2"), "2");
    assert_eq!(publisher.request("send 3 5"), "ok");
    assert_eq!(late.request("take 2"), "3 4");
    assert_eq!(take(&topic, 5), [0, 1, 2, 3, 4]);
    assert_eq!((drain(&topic), topic.stats().publishers), (vec![], 1));
}

fn replaced() {
    let name = unique();
    let topic = topic::<Tensor>(&name, "");
    topic.subscribe().unwrap();
    for round in 0..rounds(10) as u64 {
        let mut publisher = peer("tensor", &name, "");
        assert_eq!(publisher.request(&format!("send {} {}", 2 * round, 2 * round + 2)), "ok");
        assert_eq!(take(&topic, 2), [2 * round, 2 * round + 1]);
        publisher.kill();
    }
    assert_eq!(topic.missed(), 0);
    eventually("all publishers are disconnected", || {
        topic.recv().is_none() && topic.stats().publishers == 0
    });
    // The next subscriber removes the sockets of dead publishers.
    super::child::topic::<u64>(&name, "").subscribe().unwrap();
    eventually("the directory is empty", || {
        super::child::topic::<u64>(&name, "").subscribe().unwrap();
        sockets(&name).is_empty()
    });
}

/// Every message is in a new segment, which the publisher makes just before it sends.
fn segments() {
    let name = unique();
    let mut subscriber = subscriber("tensor", &name, "");
    let topic: Topic<Tensor> = topic(&name, "depth=8,growth=4096");
    assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
    for number in 0..40 {
        send(&topic, number).unwrap();
        assert_eq!(subscriber.request("take 1"), number.to_string());
    }
    assert_eq!(subscriber.request("missed"), "0");
}

fn many() {
    let name = unique();
    // Four topics in each process: few processes may watch a directory (inotify instances).
    let start = |_| Peer::start(&format!("four_topics {name}"));
    let mut subscribers: Vec<Peer> = (0..16).map(start).collect();
    let topic = topic::<Tensor>(&name, "ignore_own");
    topic.advertise().unwrap();
    subscribers.iter_mut().for_each(|subscriber| subscriber.write_line("subscribe"));
    assert_eq!(topic.wait_for_subscribers(64, LONG).unwrap(), 64);
    (0..10).for_each(|number| send(&topic, number).unwrap());
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.read_line(), "ok");
        assert_eq!(
            (subscriber.request("take 10"), subscriber.request("missed")),
            (range(0..10), "0".into())
        );
    }
    subscribers.truncate(10);
    eventually("the other subscribers are disconnected", || topic.stats().subscribers == 40);
}

/// A child with four topics of one name, which must all receive the same.
fn four_topics(words: &[&str]) {
    let topics: Vec<Topic<Tensor>> = (0..4).map(|_| topic(words[0], "")).collect();
    serve(|words| match *words {
        ["subscribe"] => reply(topics.iter().try_for_each(Topic::subscribe)),
        ["take", count] => {
            let count = count.parse().unwrap();
            let taken: Vec<Vec<u64>> = topics.iter().map(|topic| take(topic, count)).collect();
            assert!(taken.iter().all(|numbers| *numbers == taken[0]));
            show(&taken[0])
        }
        ["missed"] => topics.iter().map(Topic::missed).sum::<u64>().to_string(),
        _ => panic!("{words:?}"),
    });
}

fn at_once() {
    for kind in ["u64", "tensor"].repeat(rounds(5)) {
        let name = unique();
        let (mut publishers, mut subscribers): (Vec<Peer>, Vec<Peer>) =
            (0..4).map(|_| (peer(kind, &name, ""), peer(kind, &name, ""))).unzip();
        publishers.iter_mut().for_each(|publisher| publisher.write_line("subscribers 4"));
        subscribers.iter_mut().for_each(|subscriber| subscriber.write_line("subscribe"));
        publishers.iter_mut().for_each(|publisher| assert_eq!(publisher.read_line(), "4"));
        subscribers.iter_mut().for_each(|subscriber| assert_eq!(subscriber.read_line(), "ok"));
        publishers.iter_mut().for_each(|publisher| assert_eq!(publisher.request("send 0 5"), "ok"));
        for subscriber in &mut subscribers {
            let taken = subscriber.request("take 20");
            let mut numbers: Vec<u64> = taken.split(' ').map(|n| n.parse().unwrap()).collect();
            numbers.sort_unstable();
            let expected: Vec<u64> = (0..20).map(|n| n / 4).collect();
            assert_eq!((numbers, subscriber.request("drain")), (expected, String::new()), "{kind}");
            assert_eq!(subscriber.request("publishers"), "4");
        }
    }
}

fn counted() {
    let name = unique();
    let topic = topic::<u64>(&name, "");
    let count = topic.wait_for_subscribers(1, Duration::from_millis(10)).unwrap();
    assert_eq!(count, 0, "the topic itself does not count");
    let one = subscriber("u64", &name, "");
    assert_eq!(topic.wait_for_subscribers(1, Duration::MAX).unwrap(), 1);
    let another = subscriber("u64", &name, "");
    assert_eq!(topic.wait_for_subscribers(2, LONG).unwrap(), 2);
    one.kill();
    eventually("one is left", || topic.stats().subscribers == 1);
    another.kill();
    eventually("none is left", || topic.stats().subscribers == 0);
}

fn poor() {
    // Each count stops the handshake at another step.
    for (kind, spare) in (0..14).flat_map(|spare| [("u64", spare), ("tensor", spare)]) {
        let name = unique();
        let mut subscriber = subscriber(kind, &name, "");
        assert_eq!(subscriber.request(&format!("spare {spare}")), "ok");
        let mut publisher = publisher(kind, &name, "");
        eventually("it connects, or reports an error", || {
            subscriber.request("why") != "none" || subscriber.request("publishers") == "1"
        });
        assert!(spare > 0 || subscriber.request("publishers") == "0");
        assert_eq!(subscriber.request("descriptors 1000"), "ok");
        assert_eq!(publisher.request("subscribers 1"), "1");
        assert_eq!(publisher.request("send 0 3"), "ok");
        assert_eq!(subscriber.request("take 3"), "0 1 2");
    }
}
