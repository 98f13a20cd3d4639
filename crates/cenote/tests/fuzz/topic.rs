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

use crate::linux::{Clock, Liar, SEALS, UID, look};
use crate::mutate::mutated;
use crate::stranger::wire::{
    HELLO, MORE, Pretender, Raw, SUBSCRIBE, SUBSCRIBED, WAKE, borrowed, hello, kind, packet,
};
use crate::stranger::{Random, eventually, memfd, topic_dir, unique};

/// Bytes of a subscription's row.
const ROW: usize = 128;

fn topic<T: Message>(name: &str) -> Topic<T> {
    let pool = TensorPoolConfig { max_slots: 8, ..TensorPoolConfig::small() };
    let config = TopicConfig { depth: 4, ignore_own: true, pool, ..TopicConfig::default() };
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
    assert_eq!(subscriber.recv_timeout(Duration::from_secs(10)).unwrap(), Some(42));
}

// ---- What publishers say ------------------------------------------------------------------------

/// Words of a ring before its entries, and of an entry before its message.
const RING_HEAD: usize = 16;
const ENTRY_HEAD: usize = 2;

/// Where these stand in a publisher's answer.
const ANSWER_UID: usize = 24;
const ANSWER_FIRST: usize = 32;
const ANSWER_START: usize = 40;
const ANSWER_PAYLOAD: usize = 56;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

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
    real.send(&image).unwrap();
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
    ring: Vec<u8>,
    /// The words of a good message.
    message: Vec<Vec<u8>>,
    stride: usize,
}

impl Impostor {
    fn new(real: &Topic<Image>, seed: u64) -> Impostor {
        let (answer, ring) = honest(real);
        let payload = usize::try_from(word(&answer, ANSWER_PAYLOAD)).unwrap();
        let entry = 8 * RING_HEAD;
        let len = 8 * usize::try_from(word(&ring, entry + 8)).unwrap();
        let message = ring[entry + 8 * ENTRY_HEAD..][..len].to_vec();
        // The other answer tells of another type; what an honest one says of it is what it was asked.
        let mut mismatch = subscribe::<u64>();
        mismatch[8] = 10;
        mismatch.truncate(mismatch.len() - 8);
        Impostor {
            random: Random(seed),
            liar: Liar::new(seed),
            answers: vec![answer, mismatch],
            ring,
            message: vec![message],
            stride: 8 * (ENTRY_HEAD + payload),
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
        let (ring, row) = (self.ring(), memfd(ROW as u64, SEALS));
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

    /// A ring full of messages, few of them good.
    fn ring(&mut self) -> OwnedFd {
        let mut bytes = self.ring.clone();
        let entries = (bytes.len() - 8 * RING_HEAD) / self.stride;
        for sequence in 0..entries {
            let message = match self.random.below(8) {
                0 => self.message[0].clone(),
                _ => mutated(&self.message, &mut self.random),
            };
            let entry = &mut bytes[8 * RING_HEAD + sequence * self.stride..][..self.stride];
            let room = entry.len() - 8 * ENTRY_HEAD;
            let len = message.len().min(room);
            set_word(entry, 0, 2 * sequence as u64 + 2);
            set_word(entry, 8, message.len().div_ceil(8) as u64);
            entry[8 * ENTRY_HEAD..][..len].copy_from_slice(&message[..len]);
        }
        set_word(&mut bytes, 0, entries as u64);
        if self.random.below(4) == 0 {
            bytes = mutated(&[bytes], &mut self.random);
            bytes.resize(self.ring.len(), 0);
        }
        let fd = memfd(bytes.len() as u64, SealFlags::empty());
        rustix::io::pwrite(&fd, &bytes, 0).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SEALS).unwrap();
        fd
    }
}
