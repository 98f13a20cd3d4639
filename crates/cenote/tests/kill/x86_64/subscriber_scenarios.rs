//! The survivors of a subscriber that dies, and what must hold for them afterwards.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cenote::{Policy, Tensor, TensorPool, Topic};

use super::fork_server::Victim;
use super::pool_operations::{SLOTS, config, filled};
use super::publisher_scenarios::{Listener, SAMPLE, check_received, succeed};
use super::scenario::{Scenario, Which, check_capacity, proceed, wait_until};
use super::topic_operations::{BURSTS, DEPTH, FIRST, INTRODUCED, TIMEOUT, send, topic};

/// The topic that this process publishes.
const NAME: &str = "survivor";

/// The topic that a forwarder publishes.
const NEXT: &str = "next";

/// Receiving is short enough to sample every instruction.
const ALL: usize = 4000;

/// This process publishes, another subscribes, and so does the victim.
pub(crate) struct Subscribing {
    task: &'static str,
    publisher: Topic<Tensor>,
    /// The pool of the messages to the victim, if not that of the topic.
    introduced: Option<TensorPool>,
    listener: Listener,
}

impl Subscribing {
    pub(crate) fn new(task: &'static str) -> Subscribing {
        let publisher = topic(NAME, DEPTH, Policy::KeepLast);
        publisher.advertise().unwrap();
        let listener = Listener::new(NAME);
        assert_eq!(publisher.wait_for_subscribers(1, TIMEOUT).unwrap(), 1);
        Subscribing { task, publisher, introduced: None, listener }
    }

    /// The same with another pool, which is introduced to each new subscriber.
    pub(crate) fn introduced(task: &'static str) -> Subscribing {
        let introduced = TensorPool::new(INTRODUCED, config()).unwrap();
        Subscribing { introduced: Some(introduced), ..Subscribing::new(task) }
    }

    /// Sends the message that the victim receives.
    fn send_next(&self, value: u8) {
        match &self.introduced {
            Some(pool) => self.publisher.send(&filled(pool, value)).unwrap(),
            None => send(&self.publisher, value),
        }
    }

    /// Asserts that the other subscriber gets all messages, and that every slot outside the ring is free.
    fn check(&mut self) {
        self.listener.listen();
        [1, 2, 3].iter().for_each(|&value| send(&self.publisher, value));
        check_received(&self.listener.receive_all());
        wait_until(|| self.publisher.stats().subscribers == 1);
        // Overwrites the last message that the victim may have been sent.
        send(&self.publisher, FIRST);
        check_capacity(self.publisher.pool().unwrap(), SLOTS - DEPTH);
        if let Some(introduced) = &self.introduced {
            // At most the listener is a reader of it.
            wait_until(|| introduced.stats().unwrap().attachers <= 1);
            check_capacity(introduced, SLOTS);
        }
    }
}

impl Scenario for Subscribing {
    fn before(&mut self) -> String {
        format!("{} {NAME}", self.task)
    }

    fn prepared(&mut self, victim: &mut Victim<'_>) {
        let mut next = FIRST + 1;
        if self.task.ends_with("often") {
            for _ in 0..BURSTS {
                for value in (next..).take(DEPTH) {
                    self.send_next(value);
                    next = value + 1;
                }
                proceed(victim);
            }
        }
        match self.task {
            "recv" | "recv-often" => self.send_next(next),
            "drop-received" | "drop-often" => {
                self.send_next(next);
                proceed(victim);
                // Only the victim has a lease.
                (1..=4).for_each(|n| send(&self.publisher, next + n));
                let pool = self.introduced.as_ref().unwrap_or(self.publisher.pool().unwrap());
                assert_eq!(pool.stats().unwrap().retired, 1);
                proceed(victim);
            }
            _ => {}
        }
    }

    fn sample(&self) -> usize {
        if self.task.starts_with("recv") { ALL } else { SAMPLE }
    }

    fn one_missed_in(&self) -> usize {
        // Unsubscribing frees memory of its thread, and the path depends on the state of the heap.
        if self.task == "unsubscribe" { 10 } else { 20 }
    }

    fn after(&mut self, _said: &[String]) {
        self.check();
    }
}

/// A pool is introduced to the service thread of the victim.
pub(crate) struct Introducing(pub(crate) Subscribing);

impl Scenario for Introducing {
    fn before(&mut self) -> String {
        // A new pool each time, which no process has attached to.
        self.0.introduced = Some(TensorPool::new(INTRODUCED, config()).unwrap());
        self.0.before()
    }

    fn thread(&self) -> Which {
        Which::Service
    }

    fn trigger(&mut self) {
        self.0.send_next(FIRST + 1);
    }

    fn sample(&self) -> usize {
        SAMPLE
    }

    fn after(&mut self, said: &[String]) {
        self.0.after(said);
        self.0.introduced = None;
    }
}

/// This process waits until the victim receives a message of the full queue.
pub(crate) struct Awaited {
    publisher: Topic<Tensor>,
    sending: Option<JoinHandle<cenote::Result<()>>>,
}

impl Awaited {
    pub(crate) fn new() -> Awaited {
        let publisher = topic(NAME, 1, Policy::Block(Duration::MAX));
        publisher.advertise().unwrap();
        Awaited { publisher, sending: None }
    }
}

impl Scenario for Awaited {
    fn before(&mut self) -> String {
        format!("recv {NAME}")
    }

    fn prepared(&mut self, _victim: &mut Victim<'_>) {
        send(&self.publisher, FIRST);
        let publisher = self.publisher.clone();
        let message = filled(publisher.pool().unwrap(), FIRST + 1);
        assert!(publisher.try_send(&message).is_err(), "the victim is in the way");
        self.sending = Some(std::thread::spawn(move || publisher.send(&message)));
        let sending = self.sending.as_ref().unwrap();
        std::thread::sleep(Duration::from_millis(1));
        assert!(!sending.is_finished());
    }

    fn sample(&self) -> usize {
        ALL
    }

    fn after(&mut self, _said: &[String]) {
        // Whether or not the victim received anything, the publisher does not wait for it.
        let start = Instant::now();
        self.sending.take().unwrap().join().unwrap().unwrap();
        assert!(start.elapsed() < TIMEOUT / 2, "a dead subscriber was waited for");
        wait_until(|| self.publisher.stats().subscribers == 0);
        check_capacity(self.publisher.pool().unwrap(), SLOTS - 1);
    }
}

/// The service thread of the victim finds a new publisher.
pub(crate) struct Connecting {
    publisher: Option<Topic<Tensor>>,
    listener: Listener,
}

impl Connecting {
    pub(crate) fn new() -> Connecting {
        Connecting { publisher: None, listener: Listener::new(NAME) }
    }
}

impl Scenario for Connecting {
    fn before(&mut self) -> String {
        format!("handshake {NAME}")
    }

    fn thread(&self) -> Which {
        Which::Service
    }

    fn trigger(&mut self) {
        self.listener.listen();
        self.publisher = Some(succeed(NAME, 1));
    }

    fn sample(&self) -> usize {
        SAMPLE
    }

    fn after(&mut self, _said: &[String]) {
        check_received(&self.listener.receive_all());
        let publisher = self.publisher.take().unwrap();
        wait_until(|| publisher.stats().subscribers == 1);
        check_capacity(publisher.pool().unwrap(), SLOTS - 3);
        drop(publisher);
        self.listener.drain();
    }
}

/// This process publishes, the victim forwards, and another process receives from the victim.
pub(crate) struct PassingOn {
    publisher: Topic<Tensor>,
    listener: Listener,
}

impl PassingOn {
    pub(crate) fn new() -> PassingOn {
        let publisher = topic(NAME, DEPTH, Policy::KeepLast);
        publisher.advertise().unwrap();
        PassingOn { publisher, listener: Listener::new(NEXT) }
    }
}

impl Scenario for PassingOn {
    fn before(&mut self) -> String {
        format!("pass-on {NAME} {NEXT}")
    }

    fn prepared(&mut self, _victim: &mut Victim<'_>) {
        send(&self.publisher, FIRST);
    }

    fn sample(&self) -> usize {
        ALL / 2
    }

    fn after(&mut self, _said: &[String]) {
        self.listener.listen();
        let successor = succeed(NEXT, 1);
        check_received(&self.listener.receive_all());
        drop(successor);
        self.listener.drain();
        // Neither the victim nor the listener has a lease.
        wait_until(|| self.publisher.stats().subscribers == 0);
        (0..4).for_each(|n| send(&self.publisher, n));
        check_capacity(self.publisher.pool().unwrap(), SLOTS - DEPTH);
    }
}
