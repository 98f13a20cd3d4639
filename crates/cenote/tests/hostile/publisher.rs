//! Publishers that send false messages to their subscribers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cenote::{Error, Tensor, Topic};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::SealFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::Test;
use super::owner::Answer;
use crate::support::raw::pool::{
    HELLO, MISMATCH, Pretender, REFUSED, Raw, SUBSCRIBE, SUBSCRIBED, WAKE, WELCOME, kind, packet,
};
use crate::support::raw::topic::{
    BEGIN, CLOSED, END, HEAD, LEN, Liar, ROW_SEALS, SEALS, SIGNATURE, Subscribed, WAITING, pretend,
    signature,
};
use crate::support::{Random, TIMEOUT, eventually, memfd, topic_dir, unique};

pub(crate) const TESTS: &[Test] = &[
    ("a_correct_publisher_is_accepted", truth),
    ("inconsistent_rings_are_rejected", rings),
    ("invalid_answers_to_a_subscriber_are_rejected", answers),
    ("a_mismatch_of_garbage_can_be_read", mismatch),
    ("a_publisher_with_a_temporary_shortage_is_asked_again", shortage),
    ("a_publisher_that_never_answers_hides_no_other", silence),
    ("impossible_heads_and_states", words),
    ("a_ring_that_changes_all_the_time", restless),
    ("a_publisher_that_never_stops_sending_delays_no_other_peer", chatter),
    ("invalid_descriptors_are_rejected", descriptors),
    ("a_message_behind_many_lost_ones_is_reported", behind),
    ("a_message_whose_pool_has_too_many_readers_is_reported_once_it_is_available", crowded),
    ("a_message_that_stays_unavailable_is_retried_now_and_then", never),
];

const UID: u64 = 0xbad0_0000_0000_0002;
/// Of a pool that is not the publisher's.
const OTHER: u64 = 0xbad0_0000_0000_0005;

/// A topic that the liar and somebody honest publish on.
struct Scene {
    topic: Topic<u64>,
    honest: Topic<u64>,
    pretender: Pretender,
}

impl Scene {
    fn new() -> Scene {
        let name = unique();
        let honest: Topic<u64> = Topic::new(&name).unwrap();
        honest.advertise().unwrap();
        Scene { pretender: pretend(&name, UID), topic: Topic::new(&name).unwrap(), honest }
    }

    /// Subscribes, while the liar does `act` with the first who comes.
    fn subscribed(&self, act: impl FnOnce(&Raw) + Send) -> Raw {
        std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                let raw = self.pretender.greeted();
                act(&raw);
                raw
            });
            let _ = self.topic.subscribe();
            served.join().unwrap()
        })
    }

    /// Whatever the liar does, all that is honest arrives: numbers that no liar would know.
    fn works(&self) {
        let honest = 1_000_000..1_000_020_u64;
        assert_eq!(self.honest.wait_for_subscribers(1, Duration::from_secs(60)).unwrap(), 1);
        for number in honest {
            self.honest.send(&number).unwrap();
            eventually("it arrives", || self.topic.recv() == Some(number));
        }
    }
}

fn truth() {
    let (scene, liar) = (Scene::new(), Liar::honest(UID));
    let _connection = scene.subscribed(|raw| liar.answer(raw));
    eventually("both are met", || scene.topic.stats().publishers == 2);
    for number in 0..3 {
        liar.publish(number, &[number + 40]);
        assert_eq!(scene.topic.recv(), Some(number + 40));
    }
    (3..10).for_each(|number| liar.publish(number, &[number]));
    let rest: Vec<u64> = std::iter::from_fn(|| scene.topic.recv()).collect();
    assert_eq!((rest, scene.topic.missed()), (vec![6, 7, 8, 9], 3));
    liar.write(CLOSED, 1);
    assert_eq!((scene.topic.recv(), scene.topic.stats().publishers), (None, 1));
    scene.works();
}

fn write_only(len: u64) -> OwnedFd {
    let fd = memfd(len, SEALS);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    std::fs::OpenOptions::new().write(true).open(path).unwrap().into()
}

fn rings() {
    let spoils: &[fn(&mut Liar)] = &[
        |l| l.said.uid ^= 1,
        |l| l.said.depth = 0,
        |l| l.said.depth = 9,
        |l| l.said.depth = 1 << 16,
        |l| l.said.depth = (1 << 16) + 1,
        |l| l.said.depth = u64::MAX,
        |l| l.said.payload = 14,
        |l| l.said.payload = 1 << 13,
        |l| l.said.payload = u64::MAX,
        |l| l.fds.clear(),
        |l| drop(l.fds.pop()),
        |l| l.fds.push(memfd(4096, SEALS)),
        |l| l.fds.extend((0..200).map(|_| memfd(8, SEALS))),
        |l| l.fds[0] = memfd(768, ROW_SEALS),
        |l| l.fds[0] = memfd(768, SealFlags::FUTURE_WRITE),
        |l| l.fds[0] = memfd(767, SEALS),
        |l| l.fds[0] = memfd(0, SEALS),
        |l| l.fds[0] = write_only(768),
        |l| l.fds[0] = std::fs::File::open("/dev/zero").unwrap().into(),
        |l| l.fds[0] = std::io::pipe().unwrap().0.into(),
        |l| l.fds[1] = memfd(256, SealFlags::empty()),
        |l| l.fds[1] = memfd(255, ROW_SEALS),
        |l| l.fds[1] = memfd(256, SEALS),
        |l| l.fds[1] = std::fs::File::open("/").unwrap().into(),
    ];
    for (number, spoil) in spoils.iter().enumerate() {
        let (scene, mut liar) = (Scene::new(), Liar::honest(UID));
        liar.publish(0, &[4]);
        spoil(&mut liar);
        let connection = scene.subscribed(|raw| liar.answer(raw));
        scene.works();
        assert_eq!(scene.topic.stats().publishers, 1, "lie {number} was believed");
        assert!(connection.is_hung_up(), "lie {number}");
    }
}

fn answers() {
    let honest = Liar::honest(UID).said.encode();
    let kinds = [0, HELLO, WELCOME, REFUSED, WAKE, SUBSCRIBE, SUBSCRIBED, MISMATCH, 11, u32::MAX];
    let mut lies: Vec<Vec<u8>> = kinds.map(|kind| packet(kind, 0, 0)).into();
    lies.extend([1, 8, 24, 48, 71].map(|len| honest[..len].to_vec()));
    lies.push([honest, vec![0]].concat());
    lies.push(vec![0xff; 60_000]);
    let fd = memfd(4096, SEALS);
    for lie in lies {
        for fds in [&[][..], &[fd.as_fd(), fd.as_fd()]] {
            let scene = Scene::new();
            let connection = scene.subscribed(|raw| drop(raw.send(&lie, fds)));
            scene.works();
            assert!(connection.is_hung_up());
        }
    }
}

fn mismatch() {
    let long = "x".repeat(SIGNATURE - 24);
    let mut garbage = signature(0, u32::MAX, u64::MAX, "\u{1b}[31mred");
    garbage[16..24].copy_from_slice(&u64::MAX.to_ne_bytes());
    for theirs in [vec![0xff; SIGNATURE], vec![0; SIGNATURE], signature(9, 0, 0, &long), garbage] {
        let name = unique();
        let pretender = pretend(&name, UID);
        let topic: Topic<u64> = Topic::new(&name).unwrap();
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                let raw = pretender.greeted();
                raw.send(&[packet(MISMATCH, 0, 0), theirs].concat(), &[]).unwrap();
                drop(raw);
            });
            topic.wait().unwrap_err()
        });
        let text = error.to_string();
        assert!(matches!(error, Error::TypeMismatch { .. }) && text.len() < 2000, "{text}");
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
}

/// It refuses for want of room, memory or descriptors, and nothing tells when it has them again.
fn shortage() {
    for code in [2, 3, 5] {
        let (scene, liar) = (Scene::new(), Liar::honest(UID));
        drop(scene.subscribed(|raw| raw.send(&packet(REFUSED, code, 0), &[]).unwrap()));
        assert!(scene.pretender.waits_for(TIMEOUT), "refusal {code}");
        let raw = scene.pretender.greeted();
        liar.answer(&raw);
        liar.publish(0, &[7]);
        eventually("it is heard", || scene.topic.recv() == Some(7));
        scene.works();
    }
    // Its pool is met first.
    let name = unique();
    let (pretender, topic) = (pretend(&name, UID), Topic::<Tensor>::new(&name).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| pretender.greeted().send(&packet(REFUSED, 3, 0), &[]).unwrap());
        topic.subscribe().unwrap();
    });
    assert!(pretender.waits_for(TIMEOUT));
}

/// It lets us connect, and says nothing; another does not even do that.
fn silence() {
    let scene = Scene::new();
    std::fs::write(topic_dir(scene.topic.name()).join(format!("file@{:016x}", UID + 1)), "")
        .unwrap();
    std::fs::create_dir(topic_dir(scene.topic.name()).join(format!("dir@{:016x}", UID + 2)))
        .unwrap();
    scene.topic.subscribe().unwrap();
    scene.works();
    // A late answer is as good as an early one.
    let (raw, liar) = (scene.pretender.greeted(), Liar::honest(UID));
    liar.answer(&raw);
    liar.publish(0, &[5]);
    eventually("it is heard", || scene.topic.recv() == Some(5));
    scene.works();
}

/// Every word that a publisher can lie in, with every lie.
fn words() {
    let lies = [1, 2, 3, 1 << 32, u64::MAX / 2, u64::MAX / 2 - 20, 1 << 63, u64::MAX - 2, u64::MAX];
    let (scene, liar) = (Scene::new(), Liar::honest(UID));
    let _connection = scene.subscribed(|raw| liar.answer(raw));
    eventually("both are met", || scene.topic.stats().publishers == 2);
    let entry = liar.said.entry(0);
    for word in [HEAD, WAITING, entry + END, entry + LEN, entry + BEGIN, entry + 2] {
        for (lie, other) in lies.iter().flat_map(|lie| lies.map(|other| (*lie, other))) {
            liar.write(word, lie);
            liar.write(HEAD, other);
            for sequence in 0..4 {
                let entry = liar.said.entry(sequence);
                liar.write(entry + END, lie.wrapping_add(sequence));
                liar.write(entry + BEGIN, lie.wrapping_add(sequence));
                liar.write(entry + LEN, other);
            }
            for _ in 0..20 {
                scene.topic.recv();
                scene.topic.latest();
            }
        }
        scene.works();
    }
    assert!(scene.topic.missed() > 0);
}

/// A publisher that scribbles over its ring while it is read.
fn scribbled(act: impl FnOnce(), liar: &Liar) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(13);
            while !stop.load(Ordering::Relaxed) {
                let word = random.below(liar.said.words());
                if word != CLOSED {
                    liar.write(word, random.next() >> random.below(64));
                }
            }
        });
        act();
        stop.store(true, Ordering::Relaxed);
    });
}

fn restless() {
    let (scene, mut liar) = (Scene::new(), Liar::honest(UID));
    liar.said.waits = 1;
    let _connection = scene.subscribed(|raw| liar.answer(raw));
    eventually("both are met", || scene.topic.stats().publishers == 2);
    let act = || {
        for _ in 0..20_000 {
            scene.topic.recv();
        }
        scene.works();
    };
    scribbled(act, &liar);
}

fn chatter() {
    let (scene, liar) = (Scene::new(), Liar::honest(UID));
    let raw = scene.subscribed(|raw| liar.answer(raw));
    scene.topic.fd().unwrap();
    // In the end nobody reads any more.
    set_socket_timeout(&raw.0, Timeout::Send, Some(Duration::from_millis(100))).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for len in [1, 1, 100] {
            let (raw, stop) = (&raw, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = raw.send(&vec![0; len], &[]);
                }
            });
        }
        for number in 0..200 {
            scene.honest.send(&number).unwrap();
            assert_eq!(scene.topic.wait().unwrap(), number);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A publisher of tensors, which is believed as far as its pool: the subscriber, the liar, and its
/// connections, that of the pool first.
pub(super) fn believed(name: &str, uid: u64) -> (Topic<Tensor>, Liar, [Raw; 2]) {
    let pretender = pretend(name, uid);
    let said = Subscribed { payload: 100, ..Liar::honest(uid).said };
    let (pool, liar) = (Answer::honest(uid), Liar::of(said));
    let topic: Topic<Tensor> = Topic::new(name).unwrap();
    let connections = std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            [0, 1].map(|_| {
                let raw = pretender.accept();
                let (hello, _) = raw.recv().unwrap();
                if kind(&hello) == HELLO {
                    pool.send(&raw);
                } else {
                    liar.answer(&raw);
                }
                raw
            })
        });
        topic.subscribe().unwrap();
        served.join().unwrap()
    });
    eventually("it is met", || topic.stats().publishers == 1);
    (topic, liar, connections)
}

/// It sends words that no tensor has.
fn descriptors() {
    let name = unique();
    let (topic, liar, connections) = believed(&name, UID);
    let honest: Topic<Tensor> = Topic::new(&name).unwrap();
    let mut random = Random(17);
    let mut received = 0;
    for sequence in 0..20_000 {
        // Now and then most of it is right: slot 3, of 1000 bytes.
        let mut words = [2, 3 | 1 << 32 | 8 << 40, UID, 0, 0, 1000, 1];
        for _ in 0..random.below(4) {
            words[random.below(7)] = random.next() >> random.below(64);
        }
        liar.publish(sequence, &words[..random.below(8).max(5)]);
        received += usize::from(topic.recv().is_some_and(|tensor| tensor.to_vec::<u8>().is_ok()));
    }
    assert!(received > 0 && topic.missed() > 0, "{received} {}", topic.missed());
    drop(connections);
    honest.send(&Tensor::from_vec(vec![1_u8; 10], &[10]).unwrap()).unwrap();
    eventually("what is honest arrives", || {
        topic.recv().is_some_and(|tensor| tensor.to_vec::<u8>().is_ok_and(|v| v == [1; 10]))
    });
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let time = Timespec::try_from(TIMEOUT).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&time)).unwrap() > 0
}

/// More than are passed over at a time.
fn behind() {
    let said = Subscribed { depth: 256, ..Liar::honest(UID).said };
    let (scene, liar) = (Scene::new(), Liar::of(said));
    let _connection = scene.subscribed(|raw| liar.answer(raw));
    eventually("both are met", || scene.topic.stats().publishers == 2);
    let fd = scene.topic.fd().unwrap();
    (0..200).for_each(|sequence| liar.publish(sequence, &[]));
    liar.publish(200, &[9]);
    while scene.topic.recv() != Some(9) {
        assert!(is_readable(fd), "after {}", scene.topic.missed());
    }
    assert_eq!(scene.topic.missed(), 200);
}

/// The words of a message: 1000 bytes in a slot of a pool.
fn message(pool: u64, slot: u64) -> [u64; 7] {
    [2, slot | 1 << 32 | 8 << 40, pool, 0, 0, 1000, 1]
}

/// Nobody tells when there is room at its door.
fn crowded() {
    let (topic, liar, _connections) = believed(&unique(), UID);
    let (owner, answer) = (Pretender::new(OTHER), Answer::honest(OTHER));
    let crowd = owner.crowd();
    let fd = topic.fd().unwrap();
    liar.publish(0, &message(OTHER, 3));
    assert!(topic.recv().is_none());
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            loop {
                assert!(owner.waits_for(TIMEOUT));
                let raw = owner.accept();
                if raw.recv().is_ok_and(|(hello, _)| !hello.is_empty()) {
                    answer.send(&raw);
                    return raw;
                }
            }
        });
        drop(crowd);
        let tensor = loop {
            match topic.recv() {
                Some(tensor) => break tensor,
                None => assert!(is_readable(fd)),
            }
        };
        assert_eq!(tensor.to_vec::<u8>().unwrap(), [6; 1000]);
        drop(served.join().unwrap());
    });
    assert_eq!(topic.missed(), 0);
}

/// Its segment does not come. Whoever sleeps on the descriptor does so most of the time, though the
/// publisher be gone.
fn never() {
    let (topic, liar, [_pool, ring]) = believed(&unique(), UID);
    let fd = topic.fd().unwrap();
    liar.publish(0, &message(UID, 7));
    let rests = || {
        let (start, mut rounds) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(100) {
            assert!(is_readable(fd) && topic.recv().is_none());
            rounds += 1;
        }
        rounds < start.elapsed().as_millis() + 5
    };
    assert!(rests());
    drop(ring);
    eventually("its end is noticed", rests);
    assert_eq!(topic.missed(), 0);
}
