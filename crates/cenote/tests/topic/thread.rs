//! One process with several threads, clones and topics of one name.

use std::collections::HashSet;

use cenote::{Tensor, Topic};

use super::Test;
use super::child::numbered_message::Sample;
use super::child::{LONG, drain, publisher, send, subscriber, take, topic};
use crate::support::unique;

pub(crate) const TESTS: &[Test] = &[
    ("two_threads_send_and_two_receive_each_message_once", two_and_two),
    ("two_threads_share_the_messages_of_another_process", shared),
    ("a_clone_is_the_same_topic", clones),
    ("two_topics_of_one_process_receive_from_each_other", two_topics),
    ("a_topic_can_ignore_its_own_messages", ignore_own),
    ("a_topic_receives_all_that_it_sent_since_it_was_made", since_made),
    ("an_iterator_waits_for_each_message", iterator),
];

const EACH: u64 = 2000;

/// The numbers that two threads receive from one topic. `u64::MAX` ends a thread.
fn taken_by_two(topic: &Topic<Tensor>) -> [Vec<u64>; 2] {
    std::thread::scope(|scope| {
        let take = || {
            let mut numbers = Vec::new();
            loop {
                match topic.wait().unwrap().number() {
                    u64::MAX => return numbers,
                    number => numbers.push(number),
                }
            }
        };
        [scope.spawn(take), scope.spawn(take)].map(|thread| thread.join().unwrap())
    })
}

/// No message is lost or received twice, and each thread receives the messages of one sender in order.
fn check(taken: &[Vec<u64>; 2]) {
    let all: HashSet<u64> = taken.iter().flatten().copied().collect();
    let count: usize = taken.iter().map(Vec::len).sum();
    assert_eq!((all.len(), count), (usize::try_from(2 * EACH).unwrap(), all.len()));
    for numbers in taken {
        for sender in 0..2 {
            let of_one = numbers.iter().filter(|number| *number % 2 == sender);
            assert!(of_one.is_sorted(), "out of order");
        }
    }
}

fn two_and_two() {
    let topic = topic::<Tensor>(&unique(), "wait,depth=4");
    topic.subscribe().unwrap();
    let taken = std::thread::scope(|scope| {
        let sender = |first: u64| {
            let topic = &topic;
            scope.spawn(move || {
                (0..EACH).for_each(|number| send(topic, 2 * number + first).unwrap());
            })
        };
        let senders = [sender(0), sender(1)];
        scope.spawn(|| {
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            (0..2).for_each(|_| send(&topic, u64::MAX).unwrap());
        });
        taken_by_two(&topic)
    });
    check(&taken);
    assert_eq!((topic.missed(), topic.stats().sent), (0, 2 * EACH + 2));
}

fn shared() {
    let name = unique();
    let topic = topic::<Tensor>(&name, "");
    topic.subscribe().unwrap();
    let mut other = publisher("tensor", &name, "wait,depth=4");
    assert_eq!(other.request("subscribers 1"), "1");
    other.write_line(&format!("send 0 {}", 2 * EACH));
    other.write_line(&format!("send {} {}", u64::MAX - 1, u64::MAX));
    let numbers = std::thread::scope(|scope| {
        let take = || {
            let mut numbers = Vec::new();
            while topic.stats().received < 2 * EACH {
                if let Some(message) =
                    topic.recv_timeout(std::time::Duration::from_millis(50)).unwrap()
                {
                    numbers.push(message.number());
                }
            }
            numbers
        };
        [scope.spawn(take), scope.spawn(take)].map(|thread| thread.join().unwrap())
    });
    let mut all = numbers.concat();
    assert!(numbers.iter().all(|numbers| numbers.is_sorted()));
    all.retain(|number| *number != u64::MAX - 1);
    all.sort_unstable();
    assert_eq!(all, (0..2 * EACH).collect::<Vec<_>>());
    assert_eq!(topic.missed(), 0);
}

fn clones() {
    let name = unique();
    let topic = topic::<u64>(&name, "");
    let clone = topic.clone();
    send(&topic, 1).unwrap();
    send(&clone, 2).unwrap();
    assert_eq!((clone.recv(), topic.recv(), clone.recv()), (Some(1), Some(2), None));
    assert_eq!((clone.stats().sent, topic.stats().received), (2, 2));
    let mut other = subscriber("u64", &name, "");
    assert_eq!(clone.wait_for_subscribers(1, LONG).unwrap(), 1);
    drop(topic);
    send(&clone, 3).unwrap();
    assert_eq!(other.request("take 1"), "3");
    assert_eq!(other.request("publishers"), "1");
}

fn two_topics() {
    let name = unique();
    let (one, two) = (topic::<Tensor>(&name, ""), topic::<Tensor>(&name, ""));
    one.subscribe().unwrap();
    two.subscribe().unwrap();
    (0..5).for_each(|number| send(&one, number).unwrap());
    (5..8).for_each(|number| send(&two, number).unwrap());
    let mut first = take(&one, 8);
    let mut second = take(&two, 8);
    first.sort_unstable();
    second.sort_unstable();
    assert_eq!((&first, &first), (&second, &(0..8).collect()));
    assert_eq!((drain(&one), drain(&two), one.missed(), two.missed()), (vec![], vec![], 0, 0));
    assert_eq!((one.stats().subscribers, two.stats().publishers), (1, 1));
    drop(one);
    send(&two, 9).unwrap();
    assert_eq!(drain(&two), [9]);
}

fn ignore_own() {
    let name = unique();
    let (ignoring, other) = (topic::<u64>(&name, "ignore_own"), topic::<u64>(&name, ""));
    ignoring.subscribe().unwrap();
    other.subscribe().unwrap();
    send(&ignoring, 1).unwrap();
    send(&other, 2).unwrap();
    assert_eq!((take(&other, 2).len(), take(&ignoring, 1)), (2, vec![2]));
    assert_eq!((ignoring.recv(), ignoring.missed()), (None, 0));
}

fn since_made() {
    let topic = topic::<Tensor>(&unique(), "depth=4");
    (0..4).for_each(|number| send(&topic, number).unwrap());
    assert_eq!(drain(&topic), [0, 1, 2, 3]);
    let late = super::child::topic::<u64>(&unique(), "depth=4");
    (0..10).for_each(|number| send(&late, number).unwrap());
    assert_eq!((drain(&late), late.missed()), (vec![6, 7, 8, 9], 6));
}

fn iterator() {
    let name = unique();
    let topic = topic::<u64>(&name, "");
    topic.subscribe().unwrap();
    let mut other = publisher("u64", &name, "wait");
    assert_eq!(other.request("subscribers 1"), "1");
    other.write_line("send 0 100");
    assert!(topic.iter().take(100).eq(0..100));
    assert_eq!(topic.wait_for_subscribers(0, LONG).unwrap(), 0);
}
