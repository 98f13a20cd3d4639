//! The operations of topics during which a victim is killed, and the listener that survives.

use std::time::{Duration, Instant};

use cenote::{Policy, Tensor, TensorMemory, TensorPool, Topic, TopicConfig};

use super::pool_operations::{LEN, all_are, config, filled, operation, read_line, write_line};
use super::tracer::mark;
use crate::support::eventually;

/// How many messages the ring of a victim holds, and that of another process.
const VICTIM_DEPTH: usize = 2;
pub(crate) const DEPTH: usize = 4;

/// The value of a victim's first message. The next ones count up.
pub(crate) const FIRST: u8 = 10;

/// Enough messages to bring a victim to its fast path, and the bursts of [`DEPTH`] in which it receives them.
pub(crate) const OFTEN: u8 = 60;
pub(crate) const BURSTS: usize = 15;

/// A limit for what takes microseconds, on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A topic that ignores its own messages.
pub(crate) fn topic(name: &str, depth: usize, policy: Policy) -> Topic<Tensor> {
    let (pool, ignore_own) = (config(), true);
    let config = TopicConfig { depth, policy, pool, ignore_own, ..TopicConfig::default() };
    Topic::with_config(name, config).unwrap()
}

pub(crate) fn send(topic: &Topic<Tensor>, value: u8) {
    topic.send(&filled(topic.pool().unwrap(), value)).unwrap();
}

/// The value of all bytes of a message.
pub(crate) fn value(message: &Tensor) -> u8 {
    let value = message.map().unwrap().as_slice::<u8>().unwrap()[0];
    assert!(all_are(message, value), "torn");
    value
}

/// Answers each line with a line. It is not a victim.
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
            _ => panic!("no such request: {line}"),
        }
    }
}

/// Prints the value of each message up to the `last`, and of all that dead publishers left. It sleeps
/// between messages.
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

/// The line that ends the output of a listener.
pub(crate) const END: &str = "end";

/// Receives until at most this many publishers are left and none has a message.
pub(crate) fn take_rest(topic: &Topic<Tensor>, publishers: usize) -> Vec<u8> {
    let (mut rest, start) = (Vec::new(), Instant::now());
    loop {
        let done = topic.stats().publishers <= publishers;
        match topic.recv() {
            Some(message) => rest.push(value(&message)),
            None if done => return rest,
            None => std::thread::yield_now(),
        }
        assert!(start.elapsed() < TIMEOUT, "a dead publisher stays connected");
    }
}

pub(crate) fn run(words: &[&str]) {
    match *words {
        ["listener", name] => listener(name),
        ["send-first", name] => send_first(name),
        ["send", name] => send_another(name, 3),
        ["send-often", name] => send_another(name, OFTEN),
        ["send-adopted", name] => send_adopted(name),
        ["send-introduced", name] => send_introduced(name),
        ["introduced", name] => introduced(name),
        ["send-blocked", name] => send_blocked(name),
        ["leave", name] => leave(name),
        ["accept", name] => accept(name),
        ["subscribe", name] => subscribe(name),
        ["recv-nothing", name] => recv_nothing(name),
        ["recv", name] => recv(name),
        ["recv-often", name] => recv_often(name),
        ["drop-often", name] => drop_often(name),
        ["recv-sleeping", name] => recv_sleeping(name),
        ["drop-received", name] => drop_received(name),
        ["unsubscribe", name] => unsubscribe(name),
        ["handshake", name] => handshake(name),
        ["pass-on", from, to] => pass_on(from, to),
        _ => panic!("no such task: {words:?}"),
    }
}

// Operations of a publisher.

/// Sends the first message, which is staged.
fn send_first(name: &str) {
    let topic = topic(name, VICTIM_DEPTH, Policy::KeepLast);
    let message = unpooled(TensorMemory::Mem, FIRST);
    operation(|| topic.send(&message).unwrap());
}

/// A tensor that is in no pool.
fn unpooled(memory: TensorMemory, value: u8) -> Tensor {
    Tensor::options().memory(memory).create_from_slice(&[value; LEN], &[LEN]).unwrap()
}

/// Sends shared memory that the pool adopts, and its subscribers map.
fn send_adopted(name: &str) {
    let topic = publisher(name, Policy::KeepLast);
    (0..3).for_each(|n| send(&topic, FIRST + n));
    let message = unpooled(TensorMemory::Shm, FIRST + 3);
    mark();
    operation(|| topic.send(&message).unwrap());
}

/// A publisher with two connected subscribers.
fn publisher(name: &str, policy: Policy) -> Topic<Tensor> {
    let topic = topic(name, VICTIM_DEPTH, policy);
    topic.advertise().unwrap();
    assert_eq!(topic.wait_for_subscribers(2, TIMEOUT).unwrap(), 2);
    topic
}

/// The ring is full: sending overwrites one message, and its slot is free for the next.
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

/// Waits until the thread that registers for membarrier fences has ended: biased locks need it. This thread and
/// the service thread are left.
fn await_fences() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    eventually("two threads are left", || threads() == 2);
}

/// The name of another pool of the publisher.
pub(crate) const INTRODUCED: &str = "introduced";

/// Sends a tensor of a pool that no subscriber has attached to.
fn send_introduced(name: &str) {
    let (topic, pool) =
        (publisher(name, Policy::KeepLast), TensorPool::new(INTRODUCED, config()).unwrap());
    (0..3).for_each(|n| send(&topic, FIRST + n));
    let message = filled(&pool, FIRST + 3);
    mark();
    operation(|| topic.send(&message).unwrap());
}

/// The ring is full, and no subscriber receives.
fn send_blocked(name: &str) {
    let topic = publisher(name, Policy::Block(Duration::from_micros(1)));
    (0..2).for_each(|n| send(&topic, FIRST + n));
    let message = filled(topic.pool().unwrap(), FIRST + 2);
    // Once before, so that the heap has free blocks of the needed sizes.
    topic.send(&message).unwrap_err();
    operation(|| topic.send(&message).unwrap_err());
}

fn leave(name: &str) {
    let topic = publisher(name, Policy::KeepLast);
    (0..2).for_each(|n| send(&topic, FIRST + n));
    operation(|| drop(topic));
}

/// The service thread does the operation.
fn accept(name: &str) {
    let topic = topic(name, VICTIM_DEPTH, Policy::KeepLast);
    send(&topic, FIRST);
    mark();
}

// Operations of a subscriber.

fn subscribe(name: &str) {
    let topic = topic(name, VICTIM_DEPTH, Policy::KeepLast);
    operation(|| topic.subscribe().unwrap());
}

/// A subscriber that has received all messages.
fn subscriber(name: &str) -> Topic<Tensor> {
    let topic = topic(name, VICTIM_DEPTH, Policy::KeepLast);
    topic.subscribe().unwrap();
    // On a busy machine the handshake may take longer.
    eventually("the publisher is connected", || topic.stats().publishers == 1);
    assert!(topic.recv().is_none());
    topic
}

/// Receives a message. Its segment may still be on its way.
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

/// A message was sent before.
fn recv(name: &str) {
    let topic = subscriber(name);
    operation(|| take(&topic));
}

/// A subscriber that has received often enough to use its fast paths: it has all slots in its cache, and its locks
/// are biased to its thread.
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

/// The service thread does the operation.
fn handshake(name: &str) {
    let topic = topic(name, VICTIM_DEPTH, Policy::KeepLast);
    topic.subscribe().unwrap();
    mark();
}

/// The service thread does the operation.
fn introduced(name: &str) {
    let _topic = subscriber(name);
    mark();
}

/// Receives from one topic and sends to another.
fn pass_on(from: &str, to: &str) {
    let (from, to) = (subscriber(from), topic(to, VICTIM_DEPTH, Policy::KeepLast));
    to.advertise().unwrap();
    assert_eq!(to.wait_for_subscribers(1, TIMEOUT).unwrap(), 1);
    operation(|| {
        let message = take(&from);
        to.send(&message).unwrap();
    });
}
