//! Subscribers that say strange things to publishers, and publishers that do so to subscribers: when
//! they meet, in their rows, and in their rings.

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
    HELLO, MORE, Pretender, Raw, SUBSCRIBE, SUBSCRIBED, WAKE, borrowed, hello, kind, packet,
};
use crate::support::{Random, eventually, memfd, topic_dir, unique};
use crate::{Clock, Liar, UID, look};

/// Bytes of a subscription's row.
const ROW: usize = 256;

/// Of a row, which is written; and of a ring, which is not.
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

fn pretender(name: &str) -> Pretender {
    std::fs::create_dir_all(topic_dir(name)).unwrap();
    Pretender::at(topic_dir(name).join(format!("{name}@{UID:016x}")))
}

/// What somebody says who subscribes to a topic of this type.
fn subscribe<T: Message>() -> Vec<u8> {
    let name = unique();
    let (pretender, liar) = (pretender(&name), Liar::new(1));
    std::thread::scope(|scope| {
        scope.spawn(|| topic::<T>(&name).subscribe().unwrap());
        loop {
            let raw = pretender.accept();
            let (said, _) = raw.recv().unwrap();
            if kind(&said) == SUBSCRIBE {
                return said;
            }
            raw.send(&liar.welcomes[0], &borrowed(&liar.fds)).unwrap();
        }
    })
}

// ---- What subscribers say -----------------------------------------------------------------------

pub(crate) fn subscribers(clock: &mut Clock) {
    let name = unique();
    let publisher = topic::<u64>(&name);
    publisher.advertise().unwrap();
    let valid = subscribe::<u64>();
    let corpus = [valid.clone(), hello(), packet(WAKE, 0, 0), packet(MORE, 0, 0)];
    let rows = [vec![0; ROW], vec![0xff; ROW]];
    let mut talkers: Vec<(Raw, Vec<OwnedFd>)> = Vec::new();
    while clock.goes_on() {
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
        talkers.push((raw, fds));
        // Its row, and those of the others.
        let (_, fds) = &talkers[clock.random.below(talkers.len())];
        if let [_, row] = &fds[..] {
            let words = mutated(&rows, &mut clock.random);
            let _ = rustix::io::pwrite(row, &words[..words.len().min(ROW)], 0);
        }
        publisher.send(&clock.random.next()).unwrap();
        if talkers.len() == 40 {
            talkers.clear();
            delivers(&publisher);
        }
    }
    drop(talkers);
    eventually("all strangers are gone", || publisher.stats().subscribers == 0);
    delivers(&publisher);
}

/// Whoever subscribes gets what is sent.
fn delivers(publisher: &Topic<u64>) {
    let subscriber = topic::<u64>(publisher.name());
    subscriber.subscribe().unwrap();
    assert_eq!(subscriber.stats().publishers, 1);
    publisher.send(&42).unwrap();
    assert_eq!(subscriber.recv_timeout(Duration::from_secs(60)).unwrap(), Some(42));
}

// ---- What publishers say ------------------------------------------------------------------------

/// Where these stand in a publisher's answer.
const ANSWER_UID: usize = 24;
const ANSWER_FIRST: usize = 32;
const ANSWER_START: usize = 40;

fn set_word(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
}

/// A publisher's answer and its ring, as one that is honest makes them; but the answer has another
/// uid.
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
    let mut impostor = Impostor::new(&real, clock.random.next() | 1);
    let pretender = pretender(&name);
    let done = AtomicBool::new(false);
    let mut received = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if pretender.waits_for(Duration::from_millis(20)) {
                    impostor.meet(&pretender.accept());
                }
            }
        });
        while clock.goes_on() {
            received += match clock.rounds % 8 {
                0 => receive::<PointCloud>(&name, |cloud| look(cloud.tensor())),
                1 => receive::<DepthImage>(&name, |depth| look(depth.tensor())),
                2 => receive::<[u64; 9]>(&name, |_| {}),
                3..=4 => receive::<Tensor>(&name, look),
                _ => receive::<Image>(&name, |image| look(image.tensor())),
            };
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(received > 0, "no message was ever good enough to be received");
    drop(image);
}

/// Subscribes, and looks at all that comes.
fn receive<T: Message>(name: &str, look: impl Fn(&T)) -> usize {
    let topic = topic::<T>(name);
    let _ = topic.subscribe();
    let mut count = 0;
    while count < 64
        && let Some(message) = topic.recv()
    {
        look(&message);
        count += 1;
    }
    std::hint::black_box(format!("{:?} {:?} {:?}", topic.stats(), topic.last_loss(), topic));
    count
}

/// A publisher whose every answer, and every message, is a little wrong.
struct Impostor {
    random: Random,
    liar: Liar,
    answers: Vec<Vec<u8>>,
    /// A ring full of good messages.
    ring: Vec<u8>,
    /// Where something is in it.
    words: Vec<usize>,
}

impl Impostor {
    fn new(real: &Topic<Image>, seed: u64) -> Impostor {
        let (answer, ring) = honest(real);
        let used = |at: &usize| ring[*at..at + 8] != [0; 8];
        let words = (0..ring.len()).step_by(8).filter(used).collect();
        // The other answer tells of another type; what an honest one says of it is what it was asked.
        let mut mismatch = subscribe::<u64>();
        mismatch[8] = 10;
        mismatch.truncate(mismatch.len() - 8);
        Impostor {
            random: Random(seed),
            liar: Liar::new(seed),
            answers: vec![answer, mismatch],
            words,
            ring,
        }
    }

    fn meet(&mut self, raw: &Raw) {
        let Ok((said, _)) = raw.recv() else { return };
        if said.len() < 12 {
            return;
        }
        match kind(&said) {
            HELLO if self.random.below(4) > 0 => {
                let _ = raw.send(&self.liar.welcomes[0], &borrowed(&self.liar.fds));
            }
            HELLO => self.liar.answer(raw),
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

    /// A ring with some words changed, or put where others were.
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
