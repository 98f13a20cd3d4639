//! The protocol between publishers and subscribers, and the ring between them, as bytes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::fs::SealFlags;

use super::mapping::Mapping;
use super::memfd;
use super::pool::{FakeEndpoint, Raw, SUBSCRIBE, SUBSCRIBED, kind, packet, path_in};
use crate::support::topic_dir;

/// The words of a subscriber's row.
pub(crate) const ARMED: usize = 0;
pub(crate) const TAKEN: usize = 16;
pub(crate) const ROW: usize = 32;

/// The words of a ring, before its entries.
pub(crate) const HEAD: usize = 0;
pub(crate) const WAITING: usize = 16;
pub(crate) const CLOSED: usize = 17;
const ENTRIES: usize = 32;

/// The words of an entry. The payload follows them.
pub(crate) const END: usize = 0;
pub(crate) const BEGIN: usize = 1;
pub(crate) const LEN: usize = 2;

pub(crate) const ROW_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
pub(crate) const SEALS: SealFlags = ROW_SEALS.union(SealFlags::FUTURE_WRITE);

/// The bytes of a signature.
pub(crate) const SIGNATURE: usize = 440;

/// The message type of a topic. The kind is 0 for plain data.
pub(crate) fn signature(kind: u32, align: u32, size: u64, name: &str) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(align.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend((name.len() as u64).to_ne_bytes());
    bytes.extend(name.bytes());
    bytes.resize(SIGNATURE, 0);
    bytes
}

pub(crate) fn u64s() -> Vec<u8> {
    signature(0, 8, 8, "u64")
}

pub(crate) fn subscribe(signature: &[u8], history: u64) -> Vec<u8> {
    [&packet(SUBSCRIBE, 0, 0)[..], signature, &history.to_ne_bytes()].concat()
}

/// The reply of a publisher that accepts a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subscribed {
    pub(crate) uid: u64,
    pub(crate) first: u64,
    pub(crate) start: u64,
    pub(crate) depth: u64,
    pub(crate) payload: u64,
    pub(crate) waits: u64,
}

impl Subscribed {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let words = [self.uid, self.first, self.start, self.depth, self.payload, self.waits];
        [packet(SUBSCRIBED, 0, 0), words.map(u64::to_ne_bytes).concat()].concat()
    }

    fn decode(bytes: &[u8]) -> Subscribed {
        let word =
            |at: usize| u64::from_ne_bytes(bytes[24 + 8 * at..32 + 8 * at].try_into().unwrap());
        Subscribed {
            uid: word(0),
            first: word(1),
            start: word(2),
            depth: word(3),
            payload: word(4),
            waits: word(5),
        }
    }

    fn stride(&self) -> usize {
        (3 + usize::try_from(self.payload).unwrap()).next_multiple_of(16)
    }

    /// The words of the whole ring.
    pub(crate) fn words(&self) -> usize {
        ENTRIES + usize::try_from(self.depth).unwrap().next_power_of_two() * self.stride()
    }

    /// The index of the first word of an entry.
    pub(crate) fn entry(&self, sequence: u64) -> usize {
        let index = sequence % self.depth.next_power_of_two();
        ENTRIES + usize::try_from(index).unwrap() * self.stride()
    }
}

/// A subscriber that a publisher has accepted, and that does not use cenote.
#[derive(Debug)]
pub(crate) struct RawSubscriber {
    pub(crate) raw: Raw,
    pub(crate) reply: Subscribed,
    pub(crate) ring: OwnedFd,
    pub(crate) row: OwnedFd,
}

/// Connects to the only publisher of a topic, and sends nothing.
pub(crate) fn connect(topic: &str) -> Raw {
    Raw::try_connect(&path_in(&topic_dir(topic), topic).unwrap()).unwrap()
}

impl RawSubscriber {
    pub(crate) fn to(topic: &str) -> RawSubscriber {
        let raw = connect(topic);
        raw.send(&subscribe(&u64s(), 0), &[]).unwrap();
        RawSubscriber::accepted(raw).unwrap()
    }

    pub(crate) fn accepted(raw: Raw) -> Option<RawSubscriber> {
        let (bytes, mut fds) = raw.recv().ok()?;
        if bytes.is_empty() || kind(&bytes) != SUBSCRIBED {
            return None;
        }
        let row = fds.pop()?;
        Some(RawSubscriber { raw, reply: Subscribed::decode(&bytes), ring: fds.pop()?, row })
    }

    pub(crate) fn write_row(&self, word: usize, value: u64) {
        write(&self.row, word, value);
    }
}

pub(crate) fn write(fd: &OwnedFd, word: usize, value: u64) {
    rustix::io::pwrite(fd, &value.to_ne_bytes(), word as u64 * 8).unwrap();
}

pub(crate) fn read(fd: &OwnedFd, word: usize) -> u64 {
    let mut bytes = [0; 8];
    rustix::io::pread(fd, &mut bytes, word as u64 * 8).unwrap();
    u64::from_ne_bytes(bytes)
}

/// A publisher that does not use cenote, and its reply.
#[derive(Debug)]
pub(crate) struct FakePublisher {
    pub(crate) reply: Subscribed,
    /// The ring, and a row.
    pub(crate) fds: Vec<OwnedFd>,
    mapping: Mapping,
}

impl FakePublisher {
    /// A valid, empty ring for four messages.
    pub(crate) fn honest(uid: u64) -> FakePublisher {
        FakePublisher::of(Subscribed { uid, first: 0, start: 0, depth: 4, payload: 13, waits: 0 })
    }

    pub(crate) fn of(reply: Subscribed) -> FakePublisher {
        let ring = memfd(reply.words() as u64 * 8, SealFlags::empty());
        let mapping = Mapping::of(&ring, reply.words());
        rustix::fs::fcntl_add_seals(&ring, SEALS).unwrap();
        let publisher =
            FakePublisher { reply, fds: vec![ring, memfd(ROW as u64 * 8, ROW_SEALS)], mapping };
        for sequence in 0..publisher.reply.depth {
            let older = sequence.wrapping_sub(publisher.reply.depth);
            publisher.write(publisher.reply.entry(sequence) + END, older);
            publisher.write(publisher.reply.entry(sequence) + BEGIN, older);
        }
        publisher
    }

    pub(crate) fn answer(&self, to: &Raw) {
        let fds: Vec<_> = self.fds.iter().map(AsFd::as_fd).collect();
        let _ = to.send(&self.reply.encode(), &fds);
    }

    /// Writes a word of its ring.
    pub(crate) fn write(&self, word: usize, value: u64) {
        self.mapping.words()[word].store(value, Ordering::SeqCst);
    }

    /// Publishes a message as a valid publisher does.
    pub(crate) fn publish(&self, sequence: u64, payload: &[u64]) {
        let entry = self.reply.entry(sequence);
        self.write(entry + BEGIN, sequence);
        for (at, word) in (LEN + 1..).zip(payload) {
            self.write(entry + at, *word);
        }
        self.write(entry + LEN, payload.len() as u64);
        self.write(entry + END, sequence);
        self.write(HEAD, sequence.wrapping_add(1));
    }
}

/// Listens at a path where subscribers look for publishers of a topic.
pub(crate) fn fake_endpoint(topic: &str, uid: u64) -> FakeEndpoint {
    std::fs::create_dir_all(topic_dir(topic)).unwrap();
    FakeEndpoint::at(topic_dir(topic).join(format!("{topic}@{uid:016x}")))
}
