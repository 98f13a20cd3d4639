//! What is done with topics by processes that are to be killed while doing it, and by those that
//! listen to them.

use std::time::{Duration, Instant};

use cenote::{Policy, Tensor, TensorMemory, TensorPool, Topic, TopicConfig};

use super::pool_operations::{LEN, all_are, config, filled, operation, read_line, write_line};
use super::tracer::mark;
use crate::support::eventually;

/// How many messages a victim keeps; and whoever is not one.
const FEW: usize = 2;
pub(crate) const DEPTH: usize = 4;

/// What a victim's messages are filled with: this, and upward.
pub(crate) const FIRST: u8 = 10;

/// So many messages that a victim has settled down; and in how many bursts of [`DEPTH`] it takes them.
pub(crate) const OFTEN: u8 = 60;
pub(crate) const BURSTS: usize = 15;

/// For what takes microseconds, on a machine that is busy with other things.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A topic of which nobody receives what he sent himself.
pub(crate) fn topic(name: &str, depth: usize, policy: Policy) -> Topic<Tensor> {
    let (pool, ignore_own) = (config(), true);
    let config = TopicConfig { depth, policy, pool, ignore_own, ..TopicConfig::default() };
    Topic::with_config(name, config).unwrap()
}

pub(crate) fn send(topic: &Topic<Tensor>, value: u8) {
    topic.send(&filled(topic.pool().unwrap(), value)).unwrap();
}

/// What a message is filled with, from its first byte to the last.
pub(crate) fn value(message: &Tensor) -> u8 {
    let value = message.map().unwrap().as_slice::<u8>().unwrap()[0];
    assert!(all_are(message, value), "torn");
    value
}

/// Answers each line with a line, and is not killed by instruction.
pub(crate) fn listener(name: &str) {
    let topic = topic(name, DEPTH, Policy::KeepLast);
    topic.subscribe().unwrap();
    while let Some(line) = read_line() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["collect", last] => collect(&topic, last.parse().unwrap()),
            ["drain"] => {
                assert_eq!(take_rest(&topic, 0), []);
                write_line("ok");
            }
            _ => panic!("no such question: {line}"),
        }
    }
}

/// Sleeps until there is a message, and tells what it was, up to the `last`, and whatever there is
/// of the dead.
fn collect(topic: &Topic<Tensor>, last: u8) {
    loop {
        let Some(message) = topic.recv_timeout(TIMEOUT).unwrap() else {
            return write_line("stuck");
        };
        let found = value(&message);
        drop(message);
        write_line(&found.to_string());
        if found == last {
            break;
        }
    }
    take_rest(topic, 1).iter().for_each(|found| write_line(&found.to_string()));
    write_line(&format!("{END} {:?}", topic.last_loss().map(|loss| loss.to_string())));
}

/// What a listener says when it has told all.
pub(crate) const END: &str = "end";

/// What there is still to take, until there are but so many publishers and none has anything.
pub(crate) fn take_rest(topic: &Topic<Tensor>, publishers: usize) -> Vec<u8> {
    let (mut rest, start) = (Vec::new(), Instant::now());
    loop {
        let done = topic.stats().publishers <= publishers;
        match topic.recv() {
            Some(message) => rest.push(value(&message)),
            None if done => return rest,
            None => std::thread::yield_now(),
        }
        assert!(start.elapsed() < TIMEOUT, "a dead publisher does not go");
    }
}

pub(crate) fn run(words: &[&str]) {
    match *words {
        ["listener", name] => listener(name),
        ["send-first", name] => send_first(name),
        ["send", name] => send_another(name, 3),
        ["send-often", name] => send_another(name, OFTEN),
        ["send-adopted", name] => send_adopted(name),
        ["send-lent", name] => send_lent(name),
        ["borrow", name] => borrow(name),
        ["send-blocked", name] => send_blocked(name),
        ["leave", name] => leave(name),
        ["let-in", name] => let_in(name),
        ["subscribe", name] => subscribe(name),
        ["recv-nothing", name] => recv_nothing(name),
        ["recv", name] => recv(name),
        ["recv-often", name] => recv_often(name),
        ["drop-often", name] => drop_often(name),
        ["recv-sleeping", name] => recv_sleeping(name),
        ["drop-received", name] => drop_received(name),
        ["unsubscribe", name] => unsubscribe(name),
        ["greet", name] => greet(name),
        ["pass-on", from, to] => pass_on(from, to),
        _ => panic!("no such task: {words:?}"),
    }
}

// The publisher's part.

/// Begins to publish, and copies what others could not see.
fn send_first(name: &str) {
    let topic = topic(name, FEW, Policy::KeepLast);
    let message = unpooled(TensorMemory::Mem, FIRST);
    operation(|| topic.send(&message).unwrap());
}

/// A tensor in memory of its own.
fn unpooled(memory: TensorMemory, value: u8) -> Tensor {
    Tensor::options().memory(memory).create_from_slice(&[value; LEN], &[LEN]).unwrap()
}

/// Makes memory part of its pool, and of what its subscribers have.
fn send_adopted(name: &str) {
    let topic = publisher(name, Policy::KeepLast);
    (0..3).for_each(|n| send(&topic, FIRST + n));
    let message = unpooled(TensorMemory::Shm, FIRST + 3);
    mark();
    operation(|| topic.send(&message).unwrap());
}

/// A publisher whose two subscribers have come, and what it sends next.
fn publisher(name: &str, policy: Policy) -> Topic<Tensor> {
    let topic = topic(name, FEW, policy);
    topic.advertise().unwrap();
    assert_eq!(topic.wait_for_subscribers(2, TIMEOUT).unwrap(), 2);
    topic
}

/// Its ring is full: one message is pushed out, and its slot is free for the next.
fn send_another(name: &str, before: u8) {
    let topic = publisher(name, Policy::KeepLast);
    if before == OFTEN {
        await_fences();
    }
    (0..before).for_each(|n| send(&topic, FIRST + n));
    let message = filled(topic.pool().unwrap(), FIRST + before);
    mark();
    operation(|| topic.send(&message).unwrap());
}

/// Waits for the thread to end that asks the kernel for fences, without which no lock favours anybody. This one and that of
/// the service are left.
fn await_fences() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    eventually("two threads are left", || threads() == 2);
}

/// A pool of a victim that is not that of its topic.
pub(crate) const LENT: &str = "lent";

/// What it sends lies in a pool that nobody has heard of.
fn send_lent(name: &str) {
    let (topic, pool) =
        (publisher(name, Policy::KeepLast), TensorPool::new(LENT, config()).unwrap());
    (0..3).for_each(|n| send(&topic, FIRST + n));
    let message = filled(&pool, FIRST + 3);
    mark();
    operation(|| topic.send(&message).unwrap());
}

/// Its ring is full, and nobody takes anything.
fn send_blocked(name: &str) {
    let topic = publisher(name, Policy::Block(Duration::from_micros(1)));
    (0..2).for_each(|n| send(&topic, FIRST + n));
    let message = filled(topic.pool().unwrap(), FIRST + 2);
    // Once before, so that the heap has what it takes.
    topic.send(&message).unwrap_err();
    operation(|| topic.send(&message).unwrap_err());
}

fn leave(name: &str) {
    let topic = publisher(name, Policy::KeepLast);
    (0..2).for_each(|n| send(&topic, FIRST + n));
    operation(|| drop(topic));
}

/// Leaves it to the service thread.
fn let_in(name: &str) {
    let topic = topic(name, FEW, Policy::KeepLast);
    send(&topic, FIRST);
    mark();
}

// The subscriber's part.

fn subscribe(name: &str) {
    let topic = topic(name, FEW, Policy::KeepLast);
    operation(|| topic.subscribe().unwrap());
}

/// A subscriber that has taken all there is.
fn subscriber(name: &str) -> Topic<Tensor> {
    let topic = topic(name, FEW, Policy::KeepLast);
    topic.subscribe().unwrap();
    // On a busy machine it may come later.
    eventually("the publisher is met", || topic.stats().publishers == 1);
    assert!(topic.recv().is_none());
    topic
}

/// What was sent. Its segment may still be on its way.
fn take(topic: &Topic<Tensor>) -> Tensor {
    loop {
        if let Some(message) = topic.recv() {
            return message;
        }
        std::thread::yield_now();
    }
}

fn recv_nothing(name: &str) {
    let topic = subscriber(name);
    operation(|| assert!(topic.recv().is_none()));
}

/// Something was sent meanwhile.
fn recv(name: &str) {
    let topic = subscriber(name);
    operation(|| take(&topic));
}

/// A subscriber that has received for a while, so that it does so by the short ways: it knows all slots, and its
/// locks are its own.
fn frequent_subscriber(name: &str) -> Topic<Tensor> {
    let topic = subscriber(name);
    await_fences();
    for _ in 0..BURSTS {
        mark();
        (0..DEPTH).for_each(|_| drop(take(&topic)));
    }
    topic
}

fn recv_often(name: &str) {
    let topic = frequent_subscriber(name);
    operation(|| take(&topic));
}

fn drop_often(name: &str) {
    let topic = frequent_subscriber(name);
    mark();
    let message = take(&topic);
    mark();
    operation(|| drop(message));
}

fn recv_sleeping(name: &str) {
    let topic = subscriber(name);
    operation(|| assert!(topic.recv_timeout(Duration::from_micros(100)).unwrap().is_none()));
}

fn drop_received(name: &str) {
    let topic = subscriber(name);
    mark();
    let message = take(&topic);
    mark();
    operation(|| drop(message));
}

fn unsubscribe(name: &str) {
    let topic = subscriber(name);
    operation(|| drop(topic));
}

/// Leaves it to the service thread.
fn greet(name: &str) {
    let topic = topic(name, FEW, Policy::KeepLast);
    topic.subscribe().unwrap();
    mark();
}

/// Leaves it to the service thread.
fn borrow(name: &str) {
    let _topic = subscriber(name);
    mark();
}

/// Takes from one and sends to another.
fn pass_on(from: &str, to: &str) {
    let (from, to) = (subscriber(from), topic(to, FEW, Policy::KeepLast));
    to.advertise().unwrap();
    assert_eq!(to.wait_for_subscribers(1, TIMEOUT).unwrap(), 1);
    operation(|| {
        let message = take(&from);
        to.send(&message).unwrap();
    });
}
