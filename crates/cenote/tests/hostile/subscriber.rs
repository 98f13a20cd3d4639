//! Subscribers that send invalid packets to a publisher, or write garbage into the words that they share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{Policy, Topic, TopicConfig};
use rustix::fs::FallocateFlags;

use super::Test;
use crate::support::raw::pool::{
    ATTACH, MISMATCH, SUBSCRIBE, SUBSCRIBED, WAKE, attach_request, kind, packet,
};
use crate::support::raw::topic::{
    ARMED, HEAD, LEN, ROW, RawSubscriber, SIGNATURE, TAKEN, connect, read, signature, subscribe,
    u64s, write,
};
use crate::support::{Random, SetOnDrop, eventually, unique};

pub(crate) const TESTS: &[Test] = &[
    ("a_valid_subscriber_is_accepted", valid),
    ("a_subscriber_cannot_write_the_ring", read_only),
    ("subscriptions_of_every_length_and_kind", lengths),
    ("a_subscriber_of_another_type_gets_the_type_of_the_topic", mismatch),
    ("garbage_in_the_words_of_a_subscriber_does_not_delay_others", garbage),
    ("a_subscriber_that_never_reads_does_not_block_the_publisher", never_reads),
    ("a_subscriber_that_sends_without_end_does_not_delay_others", endless_packets),
    ("subscriber_words_with_punched_holes_read_as_zeros", punched),
];

fn topic(policy: Policy) -> Topic<u64> {
    let config = TopicConfig { depth: 4, policy, ..TopicConfig::default() };
    let topic = Topic::with_config(&unique(), config).unwrap();
    topic.advertise().unwrap();
    topic
}

/// Asserts that an honest subscriber receives all messages.
fn works(topic: &Topic<u64>) {
    let honest: Topic<u64> = Topic::new(topic.name()).unwrap();
    honest.subscribe().unwrap();
    eventually("it is connected", || honest.stats().publishers == 1);
    for number in 0..20 {
        topic.send(&number).unwrap();
        assert_eq!(honest.wait().unwrap(), number);
    }
}

fn alone(topic: &Topic<u64>) {
    eventually("all subscribers are disconnected", || topic.stats().subscribers == 0);
}

fn valid() {
    let topic = topic(Policy::KeepLast);
    topic.send(&5).unwrap();
    let subscription = RawSubscriber::to(topic.name());
    assert_eq!((subscription.reply.first, subscription.reply.start), (0, 1));
    assert_eq!((subscription.reply.depth, subscription.reply.waits), (4, 0));
    topic.send(&77).unwrap();
    assert_eq!(read(&subscription.ring, HEAD), 2);
    let entry = subscription.reply.entry(1);
    assert_eq!([LEN, LEN + 1].map(|word| read(&subscription.ring, entry + word)), [1, 77]);
    // Armed once, it is woken once.
    subscription.write_row(ARMED, 1);
    topic.send(&78).unwrap();
    topic.send(&79).unwrap();
    assert_eq!(subscription.raw.recv().unwrap().0, [0]);
    subscription.raw.set_short_timeout();
    subscription.raw.recv().unwrap_err();
    assert_eq!(topic.stats().subscribers, 1);
    drop(subscription);
    alone(&topic);
}

fn read_only() {
    let topic = topic(Policy::KeepLast);
    let subscription = RawSubscriber::to(topic.name());
    for fd in [&subscription.ring, &subscription.row] {
        rustix::fs::ftruncate(fd, 0).unwrap_err();
        rustix::fs::ftruncate(fd, 1 << 20).unwrap_err();
    }
    rustix::io::pwrite(&subscription.ring, &[1; 8], 0).unwrap_err();
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&subscription.ring, how, 0, 4096).unwrap_err();
    works(&topic);
}

/// The bytes of a request to subscribe.
const WHOLE: usize = 24 + SIGNATURE + 8;

fn lengths() {
    let topic = topic(Policy::KeepLast);
    let whole = [subscribe(&u64s(), u64::MAX), vec![0xff; 60]].concat();
    for len in (1..=520).chain([531]) {
        let raw = connect(topic.name());
        raw.send(&whole[..len], &[]).unwrap();
        if len == WHOLE {
            assert!(RawSubscriber::accepted(raw).is_some());
        } else {
            assert!(raw.is_disconnected(), "{len}");
        }
    }
    for other in [0, SUBSCRIBED, MISMATCH, 99, u32::MAX] {
        let mut bytes = whole[..WHOLE].to_vec();
        bytes[8..12].copy_from_slice(&other.to_ne_bytes());
        let raw = connect(topic.name());
        raw.send(&bytes, &[]).unwrap();
        assert!(raw.is_disconnected(), "{other}");
    }
    // Subscribing twice, or both attaching and subscribing.
    for second in [whole[..WHOLE].to_vec(), attach_request(), packet(SUBSCRIBE, 0, 0)] {
        let subscription = RawSubscriber::to(topic.name());
        subscription.raw.send(&second, &[]).unwrap();
        if second != attach_request() {
            assert!(subscription.raw.is_disconnected(), "{}", second.len());
        }
    }
    let raw = connect(topic.name());
    raw.send(&packet(ATTACH, 0, 0), &[]).unwrap();
    raw.send(&whole[..WHOLE], &[]).unwrap();
    assert!(raw.is_disconnected());
    works(&topic);
    alone(&topic);
}

fn mismatch() {
    let topic = topic(Policy::KeepLast);
    let mut garbage = u64s();
    let mut random = Random(4);
    garbage.iter_mut().for_each(|byte| *byte = random.next().to_ne_bytes()[0]);
    let others = [
        garbage,
        vec![0; SIGNATURE],
        vec![0xff; SIGNATURE],
        signature(0, 8, 8, "i64"),
        signature(0, 4, 8, "u64"),
        signature(0, 8, 16, "u64"),
        signature(1, 0, 0, "Tensor"),
        signature(1, 8, 8, "u64"),
    ];
    for other in others {
        let raw = connect(topic.name());
        raw.send(&subscribe(&other, 0), &[]).unwrap();
        let (answer, fds) = raw.recv().unwrap();
        assert_eq!((kind(&answer), &answer[24..], fds.len()), (MISMATCH, &u64s()[..], 0));
        assert!(raw.is_disconnected());
    }
    works(&topic);
}

fn garbage() {
    for policy in [Policy::KeepLast, Policy::Reject, Policy::Block(Duration::MAX)] {
        let topic = topic(policy);
        let subscription = RawSubscriber::to(topic.name());
        let mut random = Random(9);
        // A subscriber that the publisher waits for can only claim to have received more, or less.
        for taken in [u64::MAX, 1 << 63, u64::MAX / 2, u64::MAX - 3] {
            for word in (0..ROW).filter(|word| *word != TAKEN) {
                subscription.write_row(word, random.next());
            }
            subscription.write_row(TAKEN, taken);
            (0..50).for_each(|number| topic.send(&number).unwrap());
        }
        subscription.write_row(TAKEN, 0);
        let sent = (0..5).try_for_each(|number| topic.try_send(&number));
        assert_eq!(sent.is_err(), policy != Policy::KeepLast, "it is as slow as it claims");
        drop(subscription);
        alone(&topic);
        works(&topic);
    }
}

/// It arms itself before every message, so that every message wakes it with a byte.
fn never_reads() {
    let topic = topic(Policy::KeepLast);
    let subscription = RawSubscriber::to(topic.name());
    for number in 0..10_000 {
        subscription.write_row(ARMED, number + 1);
        topic.send(&number).unwrap();
    }
    works(&topic);
    eventually("only it is still connected", || topic.stats().subscribers == 1);
    drop(subscription);
    alone(&topic);
}

fn endless_packets() {
    let topic = topic(Policy::Block(Duration::from_secs(60)));
    let subscription = RawSubscriber::to(topic.name());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut taken = 0;
            while !stop.load(Ordering::Relaxed) {
                taken += 1;
                subscription.write_row(TAKEN, taken);
                let _ = subscription.raw.send(&packet(WAKE, 0, 0), &[]);
            }
            subscription.write_row(TAKEN, u64::MAX);
        });
        let _stop = SetOnDrop(&stop);
        (0..10).for_each(|_| works(&topic));
    });
}

fn punched() {
    let topic = topic(Policy::Reject);
    let subscription = RawSubscriber::to(topic.name());
    subscription.write_row(TAKEN, u64::MAX);
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&subscription.row, how, 0, 4096).unwrap();
    (0..4).for_each(|number| topic.send(&number).unwrap());
    topic.send(&4).unwrap_err();
    write(&subscription.row, TAKEN, 1);
    topic.send(&4).unwrap();
}
