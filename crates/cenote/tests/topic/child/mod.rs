//! A child process with one topic. Each line of its standard input is a command for the topic.

pub(crate) mod numbered_message;
pub(crate) mod stamped_frame;

use std::os::fd::AsRawFd;
use std::time::Duration;

use cenote::{
    CopyReason, DepthImage, Image, PointCloud, Policy, Tensor, TensorPoolConfig, Topic, TopicConfig,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Role;
use crate::fork::sleeper;
use crate::support::eventually;
use crate::support::peer::{Peer, reply, serve};
use numbered_message::{Sample, before, retyped, swapped};

pub(crate) const ROLES: &[Role] = &[("topic_child", run_role)];

/// Longer than any wait that succeeds takes, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Starts a child with a topic of this message type, name and configuration.
pub(crate) fn peer(kind: &str, topic: &str, config: &str) -> Peer {
    Peer::start(&format!("topic_child {kind} {topic} {config}"))
}

/// Starts a child that has subscribed.
pub(crate) fn subscriber(kind: &str, topic: &str, config: &str) -> Peer {
    let mut peer = peer(kind, topic, config);
    assert_eq!(peer.request("subscribe"), "ok");
    peer
}

/// Starts a child that has advertised, so that subscribers find it.
pub(crate) fn publisher(kind: &str, topic: &str, config: &str) -> Peer {
    let mut peer = peer(kind, topic, config);
    assert_eq!(peer.request("advertise"), "ok");
    peer
}

/// Parses a configuration such as `depth=3,reject`.
pub(crate) fn config(words: &str) -> TopicConfig {
    let pool = TensorPoolConfig::small();
    let mut config = TopicConfig { pool, ..TopicConfig::default() };
    for word in words.split(',').filter(|word| !word.is_empty()) {
        let (what, value) = word.split_once('=').unwrap_or((word, ""));
        match what {
            "depth" => config.depth = value.parse().unwrap(),
            "history" => config.history = value.parse().unwrap(),
            "first" => config.first_sequence = value.parse().unwrap(),
            "slots" => config.pool.max_slots = value.parse().unwrap(),
            "growth" => config.pool.growth = value.parse().unwrap(),
            "block" => config.policy = Policy::Block(Duration::from_millis(value.parse().unwrap())),
            "wait" => config.policy = Policy::Block(LONG),
            "reject" => config.policy = Policy::Reject,
            "ignore_own" => config.ignore_own = true,
            _ => panic!("{word}"),
        }
    }
    config
}

pub(crate) fn topic<T: Sample>(name: &str, words: &str) -> Topic<T> {
    Topic::with_config(name, config(words)).unwrap()
}

pub(crate) fn send<T: Sample>(topic: &Topic<T>, number: u64) -> cenote::Result<()> {
    topic.send(&T::of(topic, number)?)
}

/// Waits until the topic is connected to this many publishers. A publisher may count the subscriber earlier.
pub(crate) fn wait_for_publishers<T: Sample>(topic: &Topic<T>, publishers: usize) {
    eventually("all publishers are connected", || topic.stats().publishers == publishers);
}

/// Receives all queued messages, and returns their numbers.
pub(crate) fn drain<T: Sample>(topic: &Topic<T>) -> Vec<u64> {
    std::iter::from_fn(|| topic.recv()).map(|message| message.number()).collect()
}

/// Waits for the next `count` messages, and returns their numbers.
pub(crate) fn take<T: Sample>(topic: &Topic<T>, count: usize) -> Vec<u64> {
    let none = || panic!("no message; missed {}: {:?}", topic.missed(), topic.last_loss());
    let next = || topic.recv_timeout(LONG).unwrap().unwrap_or_else(none).number();
    std::iter::repeat_with(next).take(count).collect()
}

pub(crate) fn show(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

/// The numbers of a range, as [`show`] formats them.
pub(crate) fn range(numbers: std::ops::Range<u64>) -> String {
    show(&numbers.collect::<Vec<_>>())
}

fn run_role(words: &[&str]) {
    let (kind, name, config) = (words[0], words[1], words.get(2).copied().unwrap_or(""));
    match kind {
        "u64" => run(topic::<u64>(name, config)),
        "byte" => run(topic::<[u8; 1]>(name, config)),
        "nothing" => run(topic::<[u8; 0]>(name, config)),
        "dozen" => run(topic::<[u32; 3]>(name, config)),
        "huge" => run(topic::<[u8; 1 << 16]>(name, config)),
        "pose" => run(topic::<before::Pose>(name, config)),
        "swapped" => run(topic::<swapped::Pose>(name, config)),
        "retyped" => run(topic::<retyped::Pose>(name, config)),
        "tensor" => run(topic::<Tensor>(name, config)),
        "image" => run(topic::<Image>(name, config)),
        "cloud" => run(topic::<PointCloud>(name, config)),
        "depth" => run(topic::<DepthImage>(name, config)),
        _ => panic!("{kind}"),
    }
}

fn run<T: Sample>(topic: Topic<T>) {
    let mut child = TopicChild { topic: Some(topic), kept: Vec::new() };
    serve(|words| child.answer(words));
}

struct TopicChild<T: Sample> {
    topic: Option<Topic<T>>,
    kept: Vec<T>,
}

impl<T: Sample> TopicChild<T> {
    fn answer(&mut self, words: &[&str]) -> String {
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let Some(topic) = &self.topic else { panic!("the topic was dropped") };
        match words[0] {
            "subscribe" => reply(topic.subscribe()),
            "advertise" => reply(topic.advertise()),
            "send" => reply((number(1)..number(2)).try_for_each(|number| send(topic, number))),
            "try_send" => reply(T::of(topic, number(1)).and_then(|it| topic.try_send(&it))),
            "recv" => topic.recv().map_or("none".into(), |message| message.number().to_string()),
            "drain" => show(&drain(topic)),
            "take" => show(&take(topic, words[1].parse().unwrap())),
            "keep" => {
                self.kept.push(topic.wait().unwrap());
                "ok".into()
            }
            "kept" => show(&self.kept.iter().map(T::number).collect::<Vec<_>>()),
            "timeout" => match topic.recv_timeout(Duration::from_millis(number(1))) {
                Ok(found) => found.map_or("none".into(), |message| message.number().to_string()),
                Err(error) => error.to_string(),
            },
            "wait" => {
                topic.wait().map_or_else(|error| error.to_string(), |m| m.number().to_string())
            }
            "latest" => topic.latest().map_or("none".into(), |m| m.number().to_string()),
            "error" => topic.last_error().map_or("none".into(), |error| error.to_string()),
            "missed" => topic.missed().to_string(),
            "received" => topic.stats().received.to_string(),
            "connected" => {
                wait_for_publishers(topic, words[1].parse().unwrap());
                "ok".into()
            }
            "publishers" => topic.stats().publishers.to_string(),
            "subscribers" => {
                let count = words[1].parse().unwrap();
                topic.wait_for_subscribers(count, LONG).unwrap().to_string()
            }
            "copies" => copies(topic),
            "clone" => sleeper().to_string(),
            "descriptors" => limit_descriptors(number(1)),
            // This many more than are open now.
            "spare" => limit_descriptors(first_free() + number(1)),
            "why" => topic.last_error().map_or("none".into(), |error| error.to_string()),
            "drop" => {
                self.topic = None;
                "ok".into()
            }
            "exit" => std::process::exit(0),
            _ => panic!("{words:?}"),
        }
    }
}

/// How often this process staged tensors, and the reasons that this topic counted.
pub(crate) fn copies<T: Sample>(topic: &Topic<T>) -> String {
    let staged: u64 = cenote::copies()
        .iter()
        .filter(|copies| copies.reason == CopyReason::Staged)
        .map(|copies| copies.count)
        .sum();
    let counted = topic.stats().copies;
    let reasons: Vec<String> =
        counted.iter().map(|c| format!("{:?} {}", c.reason, c.count)).collect();
    format!("{staged} {}", reasons.join(" ")).trim_end().to_owned()
}

fn limit_descriptors(most: u64) -> String {
    let most = Rlimit { current: Some(most), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, most).unwrap();
    "ok".into()
}

/// The lowest free descriptor: the kernel gives it to the next file.
fn first_free() -> u64 {
    std::fs::File::open("/dev/null").unwrap().as_raw_fd().try_into().unwrap()
}
