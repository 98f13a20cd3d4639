//! Waiting for several topics with a `WaitSet`.

use std::time::Duration;

use cenote::{Topic, WaitSet};

use crate::Test;
use crate::child::{LONG, topic};
use crate::support::unique;

pub(crate) const TESTS: &[Test] = &[
    ("a_wait_set_returns_the_topics_that_have_a_message", some),
    ("a_topic_that_was_removed_is_not_waited_for", removed),
    ("a_topic_that_was_dropped_leaves_the_set", dropped),
];

/// Two empty topics in a set.
fn setting() -> (WaitSet, [Topic<u64>; 2], [usize; 2]) {
    let mut set = WaitSet::new().unwrap();
    let topics = [(); 2].map(|()| topic::<u64>(&unique(), ""));
    let keys = [0, 1].map(|at| set.add(&topics[at]).unwrap());
    for topic in &topics {
        assert_eq!(topic.recv(), None);
    }
    (set, topics, keys)
}

fn some() {
    let (mut set, topics, keys) = setting();
    assert_eq!(set.wait(Some(Duration::ZERO)).unwrap(), []);
    topics[1].send(&5).unwrap();
    assert_eq!(set.wait(Some(LONG)).unwrap(), [keys[1]]);
    assert_eq!((topics[1].recv(), topics[1].recv()), (Some(5), None));
    assert_eq!(set.wait(Some(Duration::ZERO)).unwrap(), []);
    assert_eq!(set.add(&topics[0].clone()).unwrap(), keys[0], "it is in the set already");
}

fn removed() {
    let (mut set, topics, keys) = setting();
    topics.iter().for_each(|topic| topic.send(&7).unwrap());
    assert!(set.remove(&topics[0]) && !set.remove(&topics[0]));
    assert_eq!(set.wait(Some(LONG)).unwrap(), [keys[1]]);
    assert_eq!(topics[0].recv(), Some(7));
    assert!(!keys.contains(&set.add(&topics[0]).unwrap()), "keys are not used again");
}

fn dropped() {
    let (set, [first, second], keys) = setting();
    let name = first.name().to_owned();
    first.send(&7).unwrap();
    assert_eq!(set.wait(Some(LONG)).unwrap(), [keys[0]]);
    drop(first);
    topic::<u64>(&name, "").send(&8).unwrap();
    assert_eq!(
        set.wait(Some(Duration::ZERO)).unwrap(),
        [],
        "the topic that could receive it was dropped"
    );
    second.send(&9).unwrap();
    assert_eq!(set.wait(Some(LONG)).unwrap(), [keys[1]]);
}
