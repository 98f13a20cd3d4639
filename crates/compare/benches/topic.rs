//! What handing a frame to another process costs, beside the floor: words in shared memory that two
//! processes spin on. Run with `cargo bench -p compare --bench topic`; `-- trips` runs one part of it.
//!
//! The distance between two cores changes from one second to the next on some machines, and everything
//! that crosses them moves with it. So rounds are short, each between two measurements of the floor, and
//! count only if those agree; compare the ratio.
#![allow(clippy::unwrap_used, reason = "a benchmark that fails ends")]

use std::hint::{black_box, spin_loop};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote::{DType, Tensor, Topic, TopicConfig};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

const TRIPS: usize = 50_000;
const ROUNDS: usize = 12;

/// Words of payload each way, 128 bytes: two lines. The word that is spun on is the next.
const PAYLOAD: usize = 16;
/// From the words of one way to those of the other: no line belongs to both.
const LANE: usize = 32;
/// The word that says what the other process spins on.
const PHASE: usize = 2 * LANE;
const FLOOR: u64 = 0;
const TOPIC: u64 = 1;
const STOP: u64 = 2;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "echo", fd] => echo(&Floor::open(fd.parse().unwrap())),
        [_, "sleep"] => sleep(),
        [_, "wake", fd] => wake(fd.parse().unwrap()),
        [_, ref wanted @ ..] => parent(wanted),
        [] => {}
    }
}

/// Runs the parts that were asked for, or all.
fn parent(wanted: &[&str]) {
    let dir = std::env::temp_dir().join(format!("cenote-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    // SAFETY: no other thread runs yet.
    #[allow(unsafe_code)]
    unsafe {
        std::env::set_var("CENOTE_DIR", &dir);
    }
    let parts: [(&str, fn()); 4] =
        [("empty", empty), ("trips", round_trips), ("fan", fan_out), ("wake", wake_ups)];
    let all = !parts.iter().any(|(name, _)| wanted.contains(name));
    parts.iter().filter(|(name, _)| all || wanted.contains(name)).for_each(|(_, part)| part());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Nobody hears what this process says itself.
fn topic<T: cenote::Message>(name: &str) -> Topic<T> {
    Topic::with_config(name, TopicConfig { ignore_own: true, ..TopicConfig::default() }).unwrap()
}

fn child(args: &[&str]) -> Child {
    Command::new(std::env::current_exe().unwrap()).args(args).spawn().unwrap()
}

/// Words in shared memory.
struct Floor {
    words: &'static [AtomicU64],
    fd: OwnedFd,
}

impl Floor {
    fn new() -> Floor {
        // Inherited by the child.
        let fd = memfd_create("floor", MemfdFlags::empty()).unwrap();
        ftruncate(&fd, 4096).unwrap();
        Floor::map(fd)
    }

    #[allow(unsafe_code)]
    fn open(fd: RawFd) -> Floor {
        // SAFETY: the parent left the descriptor to this process.
        Floor::map(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    #[allow(unsafe_code)]
    fn map(fd: OwnedFd) -> Floor {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let at = unsafe { mmap(std::ptr::null_mut(), 4096, prot, MapFlags::SHARED, &fd, 0) };
        let at = at.unwrap().cast::<AtomicU64>();
        // SAFETY: the file has that size, the mapping stays, and it is only accessed atomically.
        let words = unsafe { std::slice::from_raw_parts(at, 512) };
        Floor { words, fd }
    }

    fn lane(&self, lane: usize) -> (&[AtomicU64], &AtomicU64) {
        let lane = &self.words[lane * LANE..][..=PAYLOAD];
        (&lane[..PAYLOAD], &lane[PAYLOAD])
    }

    fn send(&self, lane: usize, value: u64) {
        let (payload, word) = self.lane(lane);
        payload.iter().for_each(|word| word.store(value, Ordering::Relaxed));
        word.store(value, Ordering::Release);
    }

    /// What came after `old`; `None` when this is not the phase of the floor any more.
    fn recv(&self, lane: usize, old: u64) -> Option<u64> {
        let (payload, word) = self.lane(lane);
        while self.phase() == FLOOR {
            let value = word.load(Ordering::Acquire);
            if value != old {
                payload.iter().for_each(|word| assert_eq!(word.load(Ordering::Relaxed), value));
                return Some(value);
            }
            spin_loop();
        }
        None
    }

    fn phase(&self) -> u64 {
        self.words[PHASE].load(Ordering::Acquire)
    }

    fn set_phase(&self, phase: u64) {
        self.words[PHASE].store(phase, Ordering::Release);
    }

    fn trips(&self, start: u64) -> Vec<u64> {
        let trip = |n: u64| {
            let began = Instant::now();
            self.send(0, start + n + 1);
            self.recv(1, start + n).unwrap();
            nanos(began)
        };
        (0..TRIPS as u64).map(trip).collect()
    }
}

/// The other process: answers on the floor or on the topic, whichever has its turn.
fn echo(floor: &Floor) {
    let (ping, pong): (Topic<Tensor>, Topic<Tensor>) = (topic("ping"), topic("pong"));
    pong.advertise().unwrap();
    ping.subscribe().unwrap();
    let mut seen = 0;
    while floor.phase() != STOP {
        while let Some(value) = floor.recv(0, seen) {
            seen = value;
            floor.send(1, seen);
        }
        while floor.phase() == TOPIC {
            let Some(frame) = ping.recv() else {
                spin_loop();
                continue;
            };
            let value = first_word(&frame);
            let shape = [frame.shape()[0]];
            drop(frame);
            send(&pong, &shape, value);
        }
    }
}

fn send(topic: &Topic<Tensor>, shape: &[usize], value: u64) {
    let mut frame = topic.alloc_tensor(shape, DType::U64).unwrap();
    frame.map_mut().unwrap().as_mut_slice::<u64>().unwrap()[0] = value;
    topic.send(&frame).unwrap();
}

fn first_word(frame: &Tensor) -> u64 {
    frame.map().unwrap().as_slice::<u64>().unwrap()[0]
}

fn round_trips() {
    let floor = Floor::new();
    let (ping, pong): (Topic<Tensor>, Topic<Tensor>) = (topic("ping"), topic("pong"));
    let mut other = child(&["echo", &floor.fd.as_raw_fd().to_string()]);
    assert_eq!(ping.wait_for_subscribers(1, Duration::from_secs(10)).unwrap(), 1);
    pong.subscribe().unwrap();
    let mut start = 0;
    let mut floors = || {
        floor.set_phase(FLOOR);
        let mut trips = floor.trips(start);
        floor.set_phase(TOPIC);
        start += TRIPS as u64;
        trips.sort_unstable();
        trips[TRIPS / 2]
    };
    println!(
        "round trip of a fresh frame, polling; ratio of medians to the floor (bar 2.5, goal 2.0)"
    );
    for (name, bytes) in [("64 B", 64), ("1080p RGB", 1080 * 1920 * 3), ("24 MB", 24 << 20)] {
        let shape = [bytes / 8];
        floor.set_phase(TOPIC);
        // So that every slot that will be used has been touched.
        let mut trip = frame_trips(&ping, &pong, &shape, 1000);
        trip.clear();
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let before = floors();
            let mut trips = frame_trips(&ping, &pong, &shape, TRIPS);
            let after = floors();
            trips.sort_unstable();
            if before.abs_diff(after) * 10 <= before.max(after) {
                rounds.push(((before + after) / 2, trips));
            }
        }
        rounds.sort_by_key(|(floor, _)| *floor);
        for (floor, trips) in &rounds {
            print(name, *floor, trips);
        }
        if rounds.is_empty() {
            println!("  {name:<10} the floor never stayed the same");
        }
    }
    floor.set_phase(STOP);
    other.wait().unwrap();
}

fn frame_trips(
    ping: &Topic<Tensor>,
    pong: &Topic<Tensor>,
    shape: &[usize],
    count: usize,
) -> Vec<u64> {
    let trip = |n: usize| {
        let began = Instant::now();
        send(ping, shape, n as u64);
        let frame = loop {
            if let Some(frame) = pong.recv() {
                break frame;
            }
            spin_loop();
        };
        assert_eq!(first_word(&frame), n as u64);
        drop(frame);
        nanos(began)
    };
    (0..count).map(trip).collect()
}

fn print(name: &str, floor: u64, sorted: &[u64]) {
    let at = |per_mille: usize| sorted[(sorted.len() * per_mille / 1000).min(sorted.len() - 1)];
    println!(
        "  {name:<10} floor {floor:>4} ns   p50 {:>5} ({:.2}×)   p99 {:>6}   p99.9 {:>7}   max {:>9} ns",
        at(500),
        at(500) as f64 / floor as f64,
        at(990),
        at(999),
        sorted[sorted.len() - 1],
    );
}

fn nanos(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap()
}

/// The least of several rounds, and the median, in nanoseconds an operation.
fn measure(name: &str, per_round: u32, mut operation: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..50)
        .map(|_| {
            let start = Instant::now();
            (0..per_round).for_each(|_| operation());
            start.elapsed().as_nanos() as f64 / f64::from(per_round)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<44} min {:>9.1} ns   p50 {:>9.1} ns", rounds[0], rounds[25]);
    rounds[25]
}

fn empty() {
    let topic: Topic<Tensor> = Topic::new("empty").unwrap();
    send(&topic, &[8], 0);
    drop(topic.recv());
    measure("recv on an empty topic (bar 10)", 100_000, || {
        assert!(black_box(&topic).recv().is_none());
    });
    measure("alloc + send + recv + drop, own", 20_000, || {
        send(&topic, &[1080 * 1920 * 3 / 8], 1);
        black_box(topic.recv());
    });
}

/// Subscribers that are there, and let the publisher push out what they do not take.
fn sleep() {
    let topic: Topic<Tensor> = topic("fan");
    topic.subscribe().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn fan_out() {
    let fan: Topic<Tensor> = topic("fan");
    fan.advertise().unwrap();
    let mut others = Vec::new();
    let mut one = 0.0;
    for count in [0, 1, 2, 4, 16] {
        while others.len() < count {
            let other = Command::new(std::env::current_exe().unwrap())
                .arg("sleep")
                .stdin(std::process::Stdio::piped())
                .spawn();
            others.push(other.unwrap());
        }
        fan.wait_for_subscribers(count, Duration::from_secs(10)).unwrap();
        let cost = measure(&format!("alloc + send + drop, {count} subscribers"), 20_000, || {
            send(&fan, &[1080 * 1920 * 3 / 8], 1);
        });
        match count {
            1 => one = cost,
            4 => println!("  fan-out to 4 costs {:.2} times fan-out to 1 (bar 1.5)", cost / one),
            _ => {}
        }
    }
    for mut other in others {
        drop(other.stdin.take());
        other.wait().unwrap();
    }
}

/// The other process: sleeps until there is a message, or a byte, and answers.
fn wake(fd: RawFd) {
    // SAFETY: the parent left the descriptor to this process.
    #[allow(unsafe_code)]
    let mut socket = unsafe { UnixStream::from_raw_fd(fd) };
    let (ping, pong): (Topic<u64>, Topic<u64>) = (topic("wake.ping"), topic("wake.pong"));
    pong.advertise().unwrap();
    ping.subscribe().unwrap();
    let mut byte = [0];
    while socket.read_exact(&mut byte).is_ok() && byte[0] == 0 {
        socket.write_all(&byte).unwrap();
    }
    loop {
        let value = ping.wait().unwrap();
        pong.send(&value).unwrap();
        if value == STOP {
            return;
        }
    }
}

fn wake_ups() {
    const WAKES: u32 = 5_000;
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).unwrap();
    let (ping, pong): (Topic<u64>, Topic<u64>) = (topic("wake.ping"), topic("wake.pong"));
    let mut other = child(&["wake", &theirs.as_raw_fd().to_string()]);
    drop(theirs);
    ping.wait_for_subscribers(1, Duration::from_secs(10)).unwrap();
    pong.subscribe().unwrap();
    println!("sleeping on both sides, round trip");
    let mut bytes: Vec<u64> = (0..WAKES)
        .map(|_| {
            let began = Instant::now();
            ours.write_all(&[0]).unwrap();
            ours.read_exact(&mut [0]).unwrap();
            nanos(began)
        })
        .collect();
    ours.write_all(&[1]).unwrap();
    let mut messages: Vec<u64> = (0..WAKES)
        .map(|n| {
            let began = Instant::now();
            ping.send(&u64::from(n)).unwrap();
            assert_eq!(pong.wait().unwrap(), u64::from(n));
            nanos(began)
        })
        .collect();
    ping.send(&STOP).unwrap();
    pong.wait().unwrap();
    other.wait().unwrap();
    bytes.sort_unstable();
    messages.sort_unstable();
    let floor = bytes[bytes.len() / 2];
    print("socket", floor, &bytes);
    print("topic", floor, &messages);
}
