//! Several cameras and viewers, some of them killed and restarted at random. Every viewer checks every
//! frame that it receives.
//!
//! Cameras send batches on command. Viewers receive until they are stopped, and then report what they
//! received. Each frame names its camera and number, so a viewer detects frames that are out of order,
//! lost, or lost without being counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{Image, TensorPoolConfig, Topic, TopicConfig};

use super::child::stamped_frame::{Stamp, checked, stamped};
use super::child::{LONG, config};
use super::{Role, Test};
use crate::support::peer::{Peer, reply, serve};
use crate::support::{Random, emulated, unique};

pub(crate) const TESTS: &[Test] = &[
    ("one_camera_and_one_viewer_lose_no_frame", || run(1, 1, "wait", 2500)),
    ("one_camera_and_four_viewers_lose_no_frame", || run(1, 4, "wait", 2500)),
    ("four_cameras_and_one_viewer_lose_no_frame", || run(4, 1, "wait", 2500)),
    ("four_cameras_and_four_viewers_lose_no_frame", || run(4, 4, "wait", 2500)),
    ("one_camera_that_does_not_wait_and_one_viewer_count_lost_frames", || run(1, 1, "", 1000)),
    ("four_cameras_that_do_not_wait_and_four_viewers_count_lost_frames", || run(4, 4, "", 1000)),
];

pub(crate) const ROLES: &[Role] = &[("camera", camera), ("viewer", viewer)];

/// Frames in a batch.
const BATCH: u64 = 25;

fn topic(name: &str, words: &str) -> Topic<Image> {
    let pool =
        TensorPoolConfig { pool_size: 128 << 20, max_slots: 20, ..TensorPoolConfig::small() };
    Topic::with_config(name, TopicConfig { pool, ..config(words) }).unwrap()
}

/// `camera TOPIC CONFIG NUMBER`
fn camera(words: &[&str]) {
    let topic = topic(words[0], &format!("depth=4,ignore_own,{}", words[1]));
    let publisher = words[2].parse().unwrap();
    let mut number = 0;
    serve(|words| match *words {
        ["viewers", count] => {
            topic.wait_for_subscribers(count.parse().unwrap(), LONG).unwrap().to_string()
        }
        ["film", count] => {
            let until = number + count.parse::<u64>().unwrap();
            let film = |number| topic.send(&stamped(&topic, Stamp { publisher, number })?);
            let filmed = (number..until).try_for_each(film);
            number = until;
            reply(filmed)
        }
        _ => panic!("{words:?}"),
    });
}

/// The frames of one camera that a viewer received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    first: u64,
    last: u64,
    count: u64,
}

/// `viewer TOPIC`
fn viewer(words: &[&str]) {
    let topic = topic(words[0], "");
    topic.subscribe().unwrap();
    println!("ready");
    let stop = AtomicBool::new(false);
    let mut seen = BTreeMap::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::io::stdin().lines().next();
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            view(&mut seen, topic.recv_timeout(Duration::from_millis(5)).unwrap());
        }
    });
    // All cameras have ended by now. Their last frames can still be received.
    while topic.stats().publishers > 0 {
        view(&mut seen, topic.recv_timeout(Duration::from_millis(5)).unwrap());
    }
    while let Some(frame) = topic.recv() {
        view(&mut seen, Some(frame));
    }
    let cameras = seen
        .iter()
        .map(|(camera, seen)| format!(" {camera}:{}:{}:{}", seen.first, seen.last, seen.count));
    println!("{}{}", topic.missed(), cameras.collect::<String>());
}

fn view(seen: &mut BTreeMap<u64, Seen>, frame: Option<Image>) {
    let Some(frame) = frame else { return };
    let Stamp { publisher, number } = checked(&frame);
    let new = Seen { first: number, last: number, count: 0 };
    let seen = seen.entry(publisher).or_insert(new);
    assert!(seen.count == 0 || number > seen.last, "{number} of {publisher} after {}", seen.last);
    (seen.last, seen.count) = (number, seen.count + 1);
}

/// A viewer, and whether it started before the first camera.
struct Viewer {
    peer: Peer,
    from_the_start: bool,
}

impl Viewer {
    fn start(name: &str, from_the_start: bool) -> Viewer {
        let mut peer = Peer::start(&format!("viewer {name}"));
        assert_eq!(peer.read_line(), "ready");
        Viewer { peer, from_the_start }
    }

    /// Stops it. Returns how many frames it missed, and what it received from each camera.
    fn stop(mut self) -> (u64, BTreeMap<u64, Seen>) {
        let report = self.peer.request("stop");
        let mut words = report.split(' ');
        let missed = words
            .next()
            .unwrap()
            .parse()
            .unwrap_or_else(|_| panic!("the viewer reports: {report}"));
        let seen = |word: &str| {
            let numbers: Vec<u64> = word.split(':').map(|number| number.parse().unwrap()).collect();
            (numbers[0], Seen { first: numbers[1], last: numbers[2], count: numbers[3] })
        };
        assert!(self.peer.finish().success());
        (missed, words.map(seen).collect())
    }
}

/// One run of the test.
struct Run {
    name: String,
    policy: &'static str,
    random: Random,
    cameras: Vec<(u64, Peer)>,
    viewers: Vec<Viewer>,
    /// The frames that each camera has certainly sent. A killed camera may have sent more.
    sent: BTreeMap<u64, u64>,
    killed: Vec<u64>,
    batches: u64,
}

impl Run {
    fn start_camera(&mut self) {
        let number = self.sent.len() as u64;
        let role = format!("camera {} {} {number}", self.name, self.policy);
        self.cameras.push((number, Peer::start(role.trim_end())));
        self.sent.insert(number, 0);
    }

    /// Waits until every camera has exactly the current viewers as subscribers.
    fn wait_for_viewers(&mut self) {
        let count = self.viewers.len();
        for (_, camera) in &mut self.cameras {
            assert_eq!(camera.request(&format!("viewers {count}")), count.to_string());
        }
    }

    /// All cameras send a batch. Meanwhile one camera or viewer may be killed: at random, and each
    /// kind at least once.
    fn batch(&mut self) {
        for (_, camera) in &mut self.cameras {
            camera.write_line(&format!("film {BATCH}"));
        }
        self.batches += 1;
        let killed = match (self.batches, self.random.below(8)) {
            (3, _) | (_, 0) => Some(self.kill_camera()),
            (5, _) | (_, 1) => Some(self.kill_viewer()),
            _ => None,
        };
        for (number, camera) in &mut self.cameras {
            assert_eq!(camera.read_line(), "ok", "camera {number}");
            *self.sent.get_mut(number).unwrap() += BATCH;
        }
        if let Some(start_again) = killed {
            start_again(self);
            self.wait_for_viewers();
        }
    }

    fn random_pause(&mut self) {
        std::thread::sleep(Duration::from_micros(self.random.below(20_000) as u64));
    }

    fn kill_camera(&mut self) -> fn(&mut Run) {
        self.random_pause();
        let which = self.random.below(self.cameras.len());
        let (number, camera) = self.cameras.remove(which);
        camera.kill();
        self.killed.push(number);
        Run::start_camera
    }

    fn kill_viewer(&mut self) -> fn(&mut Run) {
        self.random_pause();
        let which = self.random.below(self.viewers.len());
        self.viewers.remove(which).peer.kill();
        |run| run.viewers.push(Viewer::start(&run.name, false))
    }

    /// Ends all processes. Every viewer must have received the frames in order, and counted the lost ones.
    fn end(mut self) {
        for (_, camera) in self.cameras.drain(..) {
            assert!(camera.finish().success());
        }
        for viewer in std::mem::take(&mut self.viewers) {
            let from_the_start = viewer.from_the_start;
            let (missed, seen) = viewer.stop();
            let gaps: u64 = seen.values().map(|seen| seen.last + 1 - seen.first - seen.count).sum();
            let before: u64 = seen.values().map(|seen| seen.first).sum();
            match (self.policy, from_the_start) {
                ("wait", _) => assert_eq!((missed, gaps), (0, 0), "{seen:?}"),
                // It started before any camera, so it counts every frame that it did not receive.
                (_, true) => assert_eq!(missed, gaps + before, "{seen:?}"),
                // Frames that were sent before it started may count or not.
                (_, false) => assert!((gaps..=gaps + before).contains(&missed), "{seen:?}"),
            }
            self.check(&seen, from_the_start);
        }
    }

    fn check(&self, seen: &BTreeMap<u64, Seen>, from_the_start: bool) {
        for (camera, &sent) in self.sent.iter().filter(|(_, sent)| **sent > 0) {
            let Some(seen) = seen.get(camera) else {
                assert!(!from_the_start, "no frame of camera {camera} was received");
                continue;
            };
            if from_the_start && self.policy == "wait" {
                assert_eq!(seen.first, 0);
            }
            match self.killed.contains(camera) {
                false => assert_eq!(seen.last + 1, sent, "camera {camera}"),
                true => {
                    assert!(seen.last + 1 >= sent || !from_the_start, "camera {camera}: {seen:?}");
                }
            }
        }
    }
}

/// Runs this many cameras and viewers until the cameras have sent this many frames.
fn run(cameras: u64, viewers: usize, policy: &'static str, frames: u64) {
    // In an emulator the checksums of a frame take long.
    let frames = if emulated() { frames / 20 } else { frames };
    let seed = std::env::var("CENOTE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed =
        seed.unwrap_or_else(|| u64::from(std::process::id()) << 16 | cameras << 8 | frames & 0xff);
    println!("CENOTE_TEST_SEED={seed} for {cameras} cameras and {viewers} viewers");
    let mut run = Run {
        name: unique(),
        policy,
        random: Random(seed | 1),
        cameras: Vec::new(),
        viewers: Vec::new(),
        sent: BTreeMap::new(),
        killed: Vec::new(),
        batches: 0,
    };
    run.viewers = (0..viewers).map(|_| Viewer::start(&run.name, true)).collect();
    (0..cameras).for_each(|_| run.start_camera());
    run.wait_for_viewers();
    while run.sent.values().sum::<u64>() < frames {
        run.batch();
    }
    run.end();
}
