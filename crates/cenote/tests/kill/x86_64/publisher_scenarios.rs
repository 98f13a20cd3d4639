//! Who is there when a publisher dies, and what must hold for them afterwards.

use std::path::Path;
use std::thread::JoinHandle;
use std::time::Instant;

use cenote::{Policy, Tensor, Topic, TopicConfig};

use super::fork_server::{ForkServer, Victim};
use super::scenario::{Scenario, Which, check_succession_of, proceed, wait_until};
use super::topic_operations::{DEPTH, END, FIRST, LENT, TIMEOUT, send, take_rest, topic, value};
use super::tracer::sleeps;

/// The topic that victims publish.
const NAME: &str = "victim";

/// What the next publisher sends.
const NEWS: [u8; 3] = [1, 2, 3];

/// Sends the news, to so many subscribers or more.
pub(crate) fn succeed(name: &str, subscribers: usize) -> Topic<Tensor> {
    let successor = topic(name, DEPTH, Policy::KeepLast);
    successor.advertise().unwrap();
    assert!(successor.wait_for_subscribers(subscribers, TIMEOUT).unwrap() >= subscribers);
    NEWS.iter().for_each(|&value| send(&successor, value));
    successor
}

/// All the news, in order; and of the dead, some, in order: no two alike, none torn.
pub(crate) fn check_heard(heard: &[u8]) {
    let (dead, news): (Vec<u8>, Vec<u8>) = heard.iter().partition(|&&value| value >= FIRST);
    assert_eq!(news, NEWS, "{heard:?}");
    assert!(dead.is_sorted_by(|a, b| a < b), "{heard:?}");
}

/// Somebody in another process who listens.
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

    /// Begins to listen, asleep most of the time, until the last of the news.
    pub(crate) fn listen(&mut self) {
        self.fork_server.write_line(&format!("collect {}", NEWS[NEWS.len() - 1]));
    }

    /// Hears the next, and goes on.
    pub(crate) fn read_line(&mut self) -> u8 {
        self.fork_server.read_line().parse().unwrap()
    }

    pub(crate) fn wait_until_asleep(&self) {
        wait_until(|| sleeps(self.pid));
    }

    /// All that is heard up to the last of the news, and of the dead; none was lost but by being
    /// pushed out.
    pub(crate) fn hear_all(&mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        loop {
            let line = self.fork_server.read_line();
            match line.strip_prefix(END) {
                None => heard.push(line.parse().unwrap()),
                Some(lost) => {
                    assert_eq!(lost, " None", "{heard:?}");
                    return heard;
                }
            }
        }
    }

    /// Lets go of publishers that are gone.
    pub(crate) fn drain(&mut self) {
        assert_eq!(self.fork_server.request("drain"), "ok");
    }
}

/// The victim publishes; this process polls, and another sleeps or looks the other way.
pub(crate) struct Publishing {
    task: &'static str,
    /// How many messages the victim sends before, of which this process takes all.
    before: u8,
    /// This process takes them after the victim died.
    late: bool,
    listener_sleeps: bool,
    /// The victim sends what lies in another pool of its own.
    lends: bool,
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
            lends: false,
            polling,
            held: None,
            listener,
        }
    }

    pub(crate) fn late(task: &'static str, before: u8) -> Publishing {
        Publishing { late: true, ..Publishing::new(task, before) }
    }

    pub(crate) fn lending(task: &'static str, before: u8) -> Publishing {
        Publishing { lends: true, ..Publishing::new(task, before) }
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

    /// All that this process receives, up to the last of the news.
    fn poll_all(&self) -> Vec<u8> {
        let mut heard = Vec::new();
        while heard.last() != NEWS.last() {
            heard.push(value(&self.poll()));
        }
        heard.extend(take_rest(&self.polling, 1));
        heard
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
        // The last is kept. The victim keeps but two, so earlier ones may be missed.
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
        // Subscribers come while the first message is sent, sooner or later.
        if self.before == 0 { 8 } else { 20 }
    }

    fn after(&mut self, _said: &[String]) {
        if !self.listener_sleeps {
            self.listener.listen();
        }
        let successor = succeed(NAME, 2);
        let (polled, heard) = (self.poll_all(), self.listener.hear_all());
        check_heard(&polled);
        check_heard(&heard);
        // What the dead one sent last both have, or neither, if both were there.
        let last = |heard: &[u8]| heard.iter().max().copied().filter(|&last| last >= FIRST);
        let known = self.held.as_ref().filter(|_| !self.listener_sleeps).map(value);
        if self.before > 0 {
            assert_eq!(last(&heard), last(&polled).or(known), "{polled:?} and {heard:?}");
        }
        if self.late {
            assert_eq!(polled.iter().filter(|&&value| value >= FIRST).count(), 2, "{polled:?}");
        }
        let held = self.held.take();
        assert!(held.is_none_or(|held| value(&held) == FIRST + self.before - 1));
        drop(successor);
        assert_eq!(take_rest(&self.polling, 0), []);
        self.listener.drain();
        if self.lends {
            check_succession_of(LENT);
        }
    }
}

/// Of a long operation so many instructions.
pub(crate) const SAMPLE: usize = 400;

/// The victim's service thread sees that its socket is gone. Who has subscribed stays so, and once.
pub(crate) struct Reappearing(Publishing);

impl Reappearing {
    pub(crate) fn new() -> Reappearing {
        Reappearing(Publishing::new("let-in", 1))
    }
}

impl Scenario for Reappearing {
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
        check_heard(&self.0.listener.hear_all());
        drop(successor);
        assert_eq!(take_rest(&self.0.polling, 0), []);
        self.0.listener.drain();
    }
}

/// The victim's service thread lets this process subscribe.
#[derive(Default)]
pub(crate) struct LettingIn(Option<JoinHandle<Topic<Tensor>>>);

impl Scenario for LettingIn {
    fn before(&mut self) -> String {
        format!("let-in {NAME}")
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
        let mut heard = Vec::new();
        while heard.last() != NEWS.last() {
            heard.push(value(&topic.recv_timeout(TIMEOUT).unwrap().expect("the news")));
        }
        check_heard(&heard);
        drop((topic, successor));
    }
}
