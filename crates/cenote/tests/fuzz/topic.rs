//! Mutated packets and words of subscribers and publishers: in handshakes, in the words of subscribers,
//! and in rings.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{
    DepthImage, Image, Message, PixelFormat, PointCloud, Tensor, TensorPoolConfig, Topic,
    TopicConfig,
};
use rustix::fs::SealFlags;
use rustix::net::SocketAddrUnix;

use crate::mutate::mutated;
use crate::support::raw::pool::{
    ATTACH, FakeEndpoint, Raw, SEGMENT_REQUEST, SUBSCRIBE, SUBSCRIBED, WAKE, attach_request,
    borrowed, kind, packet,
};
use crate::support::{Random, SetOnDrop, eventually, memfd, topic_dir, unique};
use crate::{Clock, FakeOwner, UID, read_all};

/// Bytes of the words of a subscriber.
const ROW: usize = 256;

/// The seals of the words of a subscriber, which it writes, and of a ring, which it does not.
const ROW_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
const RING_SEALS: SealFlags = ROW_SEALS.union(SealFlags::FUTURE_WRITE);

/// How many messages a ring keeps.
const DEPTH: usize = 4;

fn topic<T: Message>(name: &str) -> Topic<T> {
    let pool = TensorPoolConfig { max_slots: 8, ..TensorPoolConfig::small() };
    let config = TopicConfig { depth: DEPTH, ignore_own: true, pool, ..TopicConfig::default() };
    Topic::with_config(name, config).unwrap()
}

/// Connects to the only publisher of a topic.
fn connect(name: &str) -> Raw {
    let entries = std::fs::read_dir(topic_dir(name)).unwrap().flatten();
    let mut sockets = entries.filter(|entry| entry.file_name().to_string_lossy().contains('@'));
    let path = sockets.next().unwrap().path();
    Raw::try_connect(&SocketAddrUnix::new(path).unwrap()).unwrap()
}

fn endpoint(name: &str) -> FakeEndpoint {
    std::fs::create_dir_all(topic_dir(name)).unwrap();
    FakeEndpoint::at(topic_dir(name).join(format!("{name}@{UID:016x}")))
}

/// The request of a subscriber to a topic of this type.
fn subscribe<T: Message>() -> Vec<u8> {
    let name = unique();
    let (endpoint, owner) = (endpoint(&name), FakeOwner::new(1));
    std::thread::scope(|scope| {
        scope.spawn(|| topic::<T>(&name).subscribe().unwrap());
        loop {
            let raw = endpoint.accept();
            let (request, _) = raw.recv().unwrap();
            if kind(&request) == SUBSCRIBE {
                return request;
            }
            raw.send(&owner.replies[0], &borrowed(&owner.fds)).unwrap();
        }
    })
}

// ---- Packets of subscribers -----------------------------------------------------------------------

pub(crate) fn subscribers(clock: &mut Clock) {
    let name = unique();
    let publisher = topic::<u64>(&name);
    publisher.advertise().unwrap();
    let valid = subscribe::<u64>();
    let corpus =
        [valid.clone(), attach_request(), packet(WAKE, 0, 0), packet(SEGMENT_REQUEST, 0, 0)];
    let rows = [vec![0; ROW], vec![0xff; ROW]];
    let mut connections: Vec<(Raw, Vec<OwnedFd>)> = Vec::new();
    while clock.has_time() {
        let raw = connect(&name);
        let mut fds = Vec::new();
        if clock.random.below(2) == 0 {
            raw.send(&valid, &[]).unwrap();
            let (answer, received) = raw.recv().unwrap();
            assert_eq!(kind(&answer), SUBSCRIBED);
            fds = received;
        }
        for _ in 0..clock.random.below(4) {
            let _ = raw.send(&mutated(&corpus, &mut clock.random), &[]);
        }
        connections.push((raw, fds));
        // Its words, or those of another subscriber.
        let (_, fds) = &connections[clock.random.below(connections.len())];
        if let [_, row] = &fds[..] {
            let words = mutated(&rows, &mut clock.random);
            let _ = rustix::io::pwrite(row, &words[..words.len().min(ROW)], 0);
        }
        publisher.send(&clock.random.next()).unwrap();
        if connections.len() == 40 {
            connections.clear();
            delivers(&publisher);
        }
    }
    drop(connections);
    eventually("all are disconnected", || publisher.stats().subscribers == 0);
    delivers(&publisher);
}

/// Asserts that a new subscriber gets the next message.
fn delivers(publisher: &Topic<u64>) {
    let subscriber = topic::<u64>(publisher.name());
    subscriber.subscribe().unwrap();
    assert_eq!(subscriber.stats().publishers, 1);
    publisher.send(&42).unwrap();
    assert_eq!(subscriber.recv_timeout(Duration::from_secs(60)).unwrap(), Some(42));
}

// ---- Packets of publishers ------------------------------------------------------------------------

/// Offsets in the answer of a publisher.
const ANSWER_UID: usize = 24;
const ANSWER_FIRST: usize = 32;
const ANSWER_START: usize = 40;

fn set_word(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
}

/// The answer and the ring of an honest publisher. The answer has another uid.
fn honest(real: &Topic<Image>) -> (Vec<u8>, Vec<u8>) {
    let raw = connect(real.name());
    raw.send(&subscribe::<Image>(), &[]).unwrap();
    let (mut answer, fds) = raw.recv().unwrap();
    let mut ring = vec![0; usize::try_from(rustix::fs::fstat(&fds[0]).unwrap().st_size).unwrap()];
    rustix::io::pread(&fds[0], &mut ring[..], 0).unwrap();
    set_word(&mut answer, ANSWER_UID, UID);
    set_word(&mut answer, ANSWER_FIRST, 0);
    set_word(&mut answer, ANSWER_START, 0);
    (answer, ring)
}

pub(crate) fn publishers(clock: &mut Clock) {
    let real = topic::<Image>(&unique());
    let mut image = real.image(31, 16, PixelFormat::I420).unwrap();
    image.set_frame_id("camera_front").unwrap();
    (0..DEPTH).for_each(|_| real.send(&image).unwrap());
    let name = unique();
    let mut fake = FakePublisher::new(&real, clock.random.next() | 1);
    let endpoint = endpoint(&name);
    let done = AtomicBool::new(false);
    let mut received = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if endpoint.has_connection_within(Duration::from_millis(20)) {
                    fake.handshake(&endpoint.accept());
                }
            }
        });
        let _done = SetOnDrop(&done);
        while clock.has_time() {
            received += match clock.rounds % 8 {
                0 => receive::<PointCloud>(&name, |cloud| read_all(cloud.tensor())),
                1 => receive::<DepthImage>(&name, |depth| read_all(depth.tensor())),
                2 => receive::<[u64; 9]>(&name, |_| {}),
                3..=4 => receive::<Tensor>(&name, read_all),
                _ => receive::<Image>(&name, |image| read_all(image.tensor())),
            };
        }
    });
    assert!(received > 0, "no message was valid enough to be received");
    drop(image);
}

/// Subscribes, and reads all messages. Returns their number.
fn receive<T: Message>(name: &str, read: impl Fn(&T)) -> usize {
    let topic = topic::<T>(name);
    let _ = topic.subscribe();
    let mut count = 0;
    while count < 64
        && let Some(message) = topic.recv()
    {
        read(&message);
        count += 1;
    }
    std::hint::black_box(format!("{:?} {:?} {:?}", topic.stats(), topic.last_loss(), topic));
    count
}

/// A publisher that mutates its answers and messages.
struct FakePublisher {
    random: Random,
    owner: FakeOwner,
    answers: Vec<Vec<u8>>,
    /// A ring full of valid messages.
    ring: Vec<u8>,
    /// The offsets of its words that are not zero.
    words: Vec<usize>,
}

impl FakePublisher {
    fn new(real: &Topic<Image>, seed: u64) -> FakePublisher {
        let (answer, ring) = honest(real);
        let used = |at: &usize| ring[*at..at + 8] != [0; 8];
        let words = (0..ring.len()).step_by(8).filter(used).collect();
        // The other answer is a mismatch. It has the type where a request to subscribe has it.
        let mut mismatch = subscribe::<u64>();
        mismatch[8] = 10;
        mismatch.truncate(mismatch.len() - 8);
        FakePublisher {
            random: Random(seed),
            owner: FakeOwner::new(seed),
            answers: vec![answer, mismatch],
            words,
            ring,
        }
    }

    fn handshake(&mut self, raw: &Raw) {
        let Ok((request, _)) = raw.recv() else { return };
        if request.len() < 12 {
            return;
        }
        match kind(&request) {
            ATTACH if self.random.below(4) > 0 => {
                let _ = raw.send(&self.owner.replies[0], &borrowed(&self.owner.fds));
            }
            ATTACH => self.owner.answer(raw),
            _ => self.answer(raw),
        }
    }

    fn answer(&mut self, to: &Raw) {
        let (ring, row) = (self.ring(), memfd(ROW as u64, ROW_SEALS));
        let mut fds = vec![ring.as_fd(), row.as_fd()];
        match self.random.below(16) {
            0 => fds.truncate(1),
            1 => fds.push(row.as_fd()),
            2 => fds.swap(0, 1),
            _ => {}
        }
        let answer = match self.random.below(3) {
            0 => mutated(&self.answers, &mut self.random),
            _ => self.answers[0].clone(),
        };
        let _ = to.send(&answer, &fds);
    }

    /// A ring with some words changed or moved.
    fn ring(&mut self) -> OwnedFd {
        let mut bytes = self.ring.clone();
        let some = |random: &mut Random, words: &[usize]| words[random.below(words.len())];
        for _ in 0..self.random.below(8) {
            let from = some(&mut self.random, &self.words);
            let mut word = mutated(&[self.ring[from..from + 8].to_vec()], &mut self.random);
            word.resize(8, 0);
            let other = self.random.below(4) == 0;
            let to = if other { some(&mut self.random, &self.words) } else { from };
            bytes[to..to + 8].copy_from_slice(&word);
        }
        let fd = memfd(bytes.len() as u64, SealFlags::empty());
        rustix::io::pwrite(&fd, &bytes, 0).unwrap();
        rustix::fs::fcntl_add_seals(&fd, RING_SEALS).unwrap();
        fd
    }
}
