//! Who is there when a subscriber dies, and what must hold for them afterwards.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cenote::{Policy, Tensor, TensorPool, Topic};

use super::fork_server::Victim;
use super::pool_operations::{SLOTS, config, filled};
use super::publisher_scenarios::{Listener, SAMPLE, check_heard, succeed};
use super::scenario::{Scenario, Which, check_capacity, proceed, wait_until};
use super::topic_operations::{BURSTS, DEPTH, FIRST, LENT, TIMEOUT, send, topic};

/// The topic that this process publishes.
const NAME: &str = "survivor";

/// The one that a forwarder publishes.
const NEXT: &str = "next";

/// Receiving is short enough to take every instruction of it.
const ALL: usize = 4000;

/// This process publishes, another subscribes, and so does the victim.
pub(crate) struct Subscribing {
    task: &'static str,
    publisher: Topic<Tensor>,
    /// What the victim is sent lies here, if there is one.
    lent: Option<TensorPool>,
    listener: Listener,
}

impl Subscribing {
    pub(crate) fn new(task: &'static str) -> Subscribing {
        let publisher = topic(NAME, DEPTH, Policy::KeepLast);
        publisher.advertise().unwrap();
        let listener = Listener::new(NAME);
        assert_eq!(publisher.wait_for_subscribers(1, TIMEOUT).unwrap(), 1);
        Subscribing { task, publisher, lent: None, listener }
    }

    /// The same with another pool, which is lent to a new subscriber as it comes.
    pub(crate) fn lent(task: &'static str) -> Subscribing {
        let lent = TensorPool::new(LENT, config()).unwrap();
        Subscribing { lent: Some(lent), ..Subscribing::new(task) }
    }

    /// Sends what the victim is to take.
    fn send_next(&self, value: u8) {
        match &self.lent {
            Some(pool) => self.publisher.send(&filled(pool, value)).unwrap(),
            None => send(&self.publisher, value),
        }
    }

    /// The others read_line all, and every slot that is not in the ring can be had.
    fn check(&mut self) {
        self.listener.listen();
        [1, 2, 3].iter().for_each(|&value| send(&self.publisher, value));
        check_heard(&self.listener.hear_all());
        wait_until(|| self.publisher.stats().subscribers == 1);
        // Pushes out what the victim may have been sent.
        send(&self.publisher, FIRST);
        check_capacity(self.publisher.pool().unwrap(), SLOTS - DEPTH);
        if let Some(lent) = &self.lent {
            // The listener has it, and nobody else.
            wait_until(|| lent.stats().unwrap().attachers <= 1);
            check_capacity(lent, SLOTS);
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
                // Only the victim holds it.
                (1..=4).for_each(|n| send(&self.publisher, next + n));
                let pool = self.lent.as_ref().unwrap_or(self.publisher.pool().unwrap());
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
        // Whoever leaves gives back what its own thread allocated, while the heap is in whatever order.
        if self.task == "unsubscribe" { 10 } else { 20 }
    }

    fn after(&mut self, _said: &[String]) {
        self.check();
    }
}

/// The victim's service thread is told of a pool that is lent to it.
pub(crate) struct Borrowing(pub(crate) Subscribing);

impl Scenario for Borrowing {
    fn before(&mut self) -> String {
        // A new one each time, of which nobody has heard.
        self.0.lent = Some(TensorPool::new(LENT, config()).unwrap());
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
        self.0.lent = None;
    }
}

/// This process waits for the victim, which takes what is in the way.
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
        // Whether or not the dead one took anything: it is not waited for.
        let start = Instant::now();
        self.sending.take().unwrap().join().unwrap().unwrap();
        assert!(start.elapsed() < TIMEOUT / 2, "a dead subscriber was waited for");
        wait_until(|| self.publisher.stats().subscribers == 0);
        check_capacity(self.publisher.pool().unwrap(), SLOTS - 1);
    }
}

/// The victim's service thread finds a publisher that has just come.
pub(crate) struct Greeting {
    publisher: Option<Topic<Tensor>>,
    listener: Listener,
}

impl Greeting {
    pub(crate) fn new() -> Greeting {
        Greeting { publisher: None, listener: Listener::new(NAME) }
    }
}

impl Scenario for Greeting {
    fn before(&mut self) -> String {
        format!("greet {NAME}")
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
        check_heard(&self.listener.hear_all());
        let publisher = self.publisher.take().unwrap();
        wait_until(|| publisher.stats().subscribers == 1);
        check_capacity(publisher.pool().unwrap(), SLOTS - 3);
        drop(publisher);
        self.listener.drain();
    }
}

/// This process publishes, the victim takes and passes on, and another takes from the victim.
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
        check_heard(&self.listener.hear_all());
        drop(successor);
        self.listener.drain();
        // Neither the dead one nor the listener holds anything.
        wait_until(|| self.publisher.stats().subscribers == 0);
        (0..4).for_each(|n| send(&self.publisher, n));
        check_capacity(self.publisher.pool().unwrap(), SLOTS - DEPTH);
    }
}
