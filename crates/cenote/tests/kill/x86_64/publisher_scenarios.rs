//! The survivors of a publisher that dies, and what must hold for them afterwards.

use std::path::Path;
use std::thread::JoinHandle;
use std::time::Instant;

use cenote::{Policy, Tensor, Topic, TopicConfig};

use super::fork_server::{ForkServer, Victim};
use super::scenario::{Scenario, Which, check_succession_of, proceed, wait_until};
use super::topic_operations::{
    DEPTH, END, FIRST, INTRODUCED, TIMEOUT, send, take_rest, topic, value,
};
use super::tracer::sleeps;

/// The topic that victims publish.
const NAME: &str = "victim";

/// The values that the next publisher sends.
const NEWS: [u8; 3] = [1, 2, 3];

/// Starts the next publisher, and sends [`NEWS`] once it has at least this many subscribers.
pub(crate) fn succeed(name: &str, subscribers: usize) -> Topic<Tensor> {
    let successor = topic(name, DEPTH, Policy::KeepLast);
    successor.advertise().unwrap();
    assert!(successor.wait_for_subscribers(subscribers, TIMEOUT).unwrap() >= subscribers);
    NEWS.iter().for_each(|&value| send(&successor, value));
    successor
}

/// Asserts that all of [`NEWS`] arrived in order, and messages of the dead publisher in order, none twice.
pub(crate) fn check_received(received: &[u8]) {
    let (dead, news): (Vec<u8>, Vec<u8>) = received.iter().partition(|&&value| value >= FIRST);
    assert_eq!(news, NEWS, "{received:?}");
    assert!(dead.is_sorted_by(|a, b| a < b), "{received:?}");
}

/// A subscriber in another process.
pub(crate) struct Listener {
    fork_server: ForkServer,
    pid: i32,
}

impl Listener {
    pub(crate) fn new(name: &str) -> Listener {
        let mut fork_server = ForkServer::new();
        let pid = fork_server.fork(&format!("listener {name}"));
        fork_server.write_line("go");
        Listener { fork_server, pid }
    }

    /// Starts to receive, mostly asleep, until the last of [`NEWS`].
    pub(crate) fn listen(&mut self) {
        self.fork_server.write_line(&format!("collect {}", NEWS[NEWS.len() - 1]));
    }

    /// The value of the next message that it received.
    pub(crate) fn read_line(&mut self) -> u8 {
        self.fork_server.read_line().parse().unwrap()
    }

    pub(crate) fn wait_until_asleep(&self) {
        wait_until(|| sleeps(self.pid));
    }

    /// All values up to the last of [`NEWS`], with those of the dead publisher. Asserts that messages were
    /// missed only because newer ones overwrote them.
    pub(crate) fn receive_all(&mut self) -> Vec<u8> {
        let mut received = Vec::new();
        loop {
            let line = self.fork_server.read_line();
            match line.strip_prefix(END) {
                None => received.push(line.parse().unwrap()),
                Some(lost) => {
                    assert_eq!(lost, " None", "{received:?}");
                    return received;
                }
            }
        }
    }

    /// Makes it close the connections of dead publishers.
    pub(crate) fn drain(&mut self) {
        assert_eq!(self.fork_server.request("drain"), "ok");
    }
}

/// The victim publishes. This process polls, and another sleeps or does not receive meanwhile.
pub(crate) struct Publishing {
    task: &'static str,
    /// How many messages the victim sends before. This process receives all of them.
    before: u8,
    /// This process receives them after the victim died.
    late: bool,
    listener_sleeps: bool,
    /// The victim sends a tensor of another of its pools.
    introduces: bool,
    polling: Topic<Tensor>,
    held: Option<Tensor>,
    listener: Listener,
}

impl Publishing {
    pub(crate) fn new(task: &'static str, before: u8) -> Publishing {
        let polling = topic(NAME, DEPTH, Policy::KeepLast);
        polling.subscribe().unwrap();
        let listener = Listener::new(NAME);
        Publishing {
            task,
            before,
            late: false,
            listener_sleeps: false,
            introduces: false,
            polling,
            held: None,
            listener,
        }
    }

    pub(crate) fn late(task: &'static str, before: u8) -> Publishing {
        Publishing { late: true, ..Publishing::new(task, before) }
    }

    pub(crate) fn introducing(task: &'static str, before: u8) -> Publishing {
        Publishing { introduces: true, ..Publishing::new(task, before) }
    }

    pub(crate) fn to_a_sleeper(task: &'static str, before: u8) -> Publishing {
        Publishing { listener_sleeps: true, ..Publishing::new(task, before) }
    }

    /// Polls for a message.
    fn poll(&self) -> Tensor {
        let start = Instant::now();
        loop {
            if let Some(message) = self.polling.recv() {
                return message;
            }
            assert!(start.elapsed() < TIMEOUT, "nothing comes");
            std::thread::yield_now();
        }
    }

    /// All values that this process receives, up to the last of [`NEWS`].
    fn poll_all(&self) -> Vec<u8> {
        let mut received = Vec::new();
        while received.last() != NEWS.last() {
            received.push(value(&self.poll()));
        }
        received.extend(take_rest(&self.polling, 1));
        received
    }
}

impl Scenario for Publishing {
    fn before(&mut self) -> String {
        if self.listener_sleeps {
            self.listener.listen();
        }
        format!("{} {NAME}", self.task)
    }

    fn prepared(&mut self, victim: &mut Victim<'_>) {
        if self.late || self.before == 0 {
            return;
        }
        // The last one is kept. The ring of the victim holds two, so earlier ones may be missed.
        let last = FIRST + self.before - 1;
        let mut newest = self.poll();
        while value(&newest) != last {
            newest = self.poll();
        }
        self.held = Some(newest);
        if self.listener_sleeps {
            while self.listener.read_line() != last {}
            self.listener.wait_until_asleep();
        }
        proceed(victim);
    }

    fn sample(&self) -> usize {
        SAMPLE
    }

    fn one_missed_in(&self) -> usize {
        // The subscribers connect at some time while the first message is sent.
        if self.before == 0 { 8 } else { 20 }
    }

    fn after(&mut self, _said: &[String]) {
        if !self.listener_sleeps {
            self.listener.listen();
        }
        let successor = succeed(NAME, 2);
        let (polled, received) = (self.poll_all(), self.listener.receive_all());
        check_received(&polled);
        check_received(&received);
        // If both subscribers were connected, either both or neither got the last message of the victim.
        let last = |received: &[u8]| received.iter().max().copied().filter(|&last| last >= FIRST);
        let known = self.held.as_ref().filter(|_| !self.listener_sleeps).map(value);
        if self.before > 0 {
            assert_eq!(last(&received), last(&polled).or(known), "{polled:?} and {received:?}");
        }
        if self.late {
            assert_eq!(polled.iter().filter(|&&value| value >= FIRST).count(), 2, "{polled:?}");
        }
        let held = self.held.take();
        assert!(held.is_none_or(|held| value(&held) == FIRST + self.before - 1));
        drop(successor);
        assert_eq!(take_rest(&self.polling, 0), []);
        self.listener.drain();
        if self.introduces {
            check_succession_of(INTRODUCED);
        }
    }
}

/// How many instructions of a long operation are sampled.
pub(crate) const SAMPLE: usize = 400;

/// The service thread of the victim notices that its socket was removed. Subscribers stay connected, once.
pub(crate) struct RestoringSocket(Publishing);

impl RestoringSocket {
    pub(crate) fn new() -> RestoringSocket {
        RestoringSocket(Publishing::new("accept", 1))
    }
}

impl Scenario for RestoringSocket {
    fn before(&mut self) -> String {
        self.0.before()
    }

    fn prepared(&mut self, _victim: &mut Victim<'_>) {
        assert_eq!(value(&self.0.poll()), FIRST);
    }

    fn thread(&self) -> Which {
        Which::Service
    }

    fn trigger(&mut self) {
        let dir = Path::new(&std::env::var_os("CENOTE_DIR").unwrap()).join("default/topics");
        for socket in std::fs::read_dir(dir.join(NAME)).unwrap().flatten() {
            std::fs::remove_file(socket.path()).unwrap();
        }
    }

    fn sample(&self) -> usize {
        SAMPLE
    }

    fn after(&mut self, _said: &[String]) {
        let successor = succeed(NAME, 2);
        assert_eq!(self.0.poll_all(), NEWS, "taken twice");
        self.0.listener.listen();
        check_received(&self.0.listener.receive_all());
        drop(successor);
        assert_eq!(take_rest(&self.0.polling, 0), []);
        self.0.listener.drain();
    }
}

/// The service thread of the victim accepts this process as a subscriber.
#[derive(Default)]
pub(crate) struct Accepting(Option<JoinHandle<Topic<Tensor>>>);

impl Scenario for Accepting {
    fn before(&mut self) -> String {
        format!("accept {NAME}")
    }

    fn thread(&self) -> Which {
        Which::Service
    }

    fn trigger(&mut self) {
        self.0 = Some(std::thread::spawn(|| {
            let config = TopicConfig { history: 1, ..TopicConfig::default() };
            let topic: Topic<Tensor> = Topic::with_config(NAME, config).unwrap();
            topic.subscribe().unwrap();
            topic
        }));
    }

    fn sample(&self) -> usize {
        SAMPLE
    }

    fn after(&mut self, _said: &[String]) {
        let start = Instant::now();
        let topic = self.0.take().unwrap().join().unwrap();
        assert!(start.elapsed() < TIMEOUT / 2);
        let successor = succeed(NAME, 1);
        let mut received = Vec::new();
        while received.last() != NEWS.last() {
            received.push(value(&topic.recv_timeout(TIMEOUT).unwrap().expect("the news")));
        }
        check_received(&received);
        drop((topic, successor));
    }
}
