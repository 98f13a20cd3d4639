//! Publishers that send invalid answers to subscribers, or write garbage into their rings.

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
    ATTACH, ATTACHED, FakeEndpoint, MISMATCH, REFUSED, Raw, SUBSCRIBE, SUBSCRIBED, WAKE, kind,
    packet,
};
use crate::support::raw::topic::{
    BEGIN, CLOSED, END, FakePublisher, HEAD, LEN, ROW_SEALS, SEALS, SIGNATURE, Subscribed, WAITING,
    fake_endpoint, signature,
};
use crate::support::{Random, SetOnDrop, TIMEOUT, eventually, memfd, topic_dir, unique};

pub(crate) const TESTS: &[Test] = &[
    ("a_valid_publisher_is_accepted", valid),
    ("inconsistent_rings_are_refused", rings),
    ("invalid_answers_to_a_subscriber_are_refused", answers),
    ("a_mismatch_with_a_garbage_type_has_a_readable_error", mismatch),
    ("a_subscriber_retries_after_a_refusal_for_want_of_resources", shortage),
    ("a_publisher_that_never_answers_does_not_hide_others", silence),
    ("impossible_heads_and_entries", words),
    ("a_ring_that_changes_all_the_time", changing_ring),
    ("a_publisher_that_sends_without_end_does_not_delay_others", endless_packets),
    ("invalid_descriptors_in_messages", descriptors),
    ("a_message_behind_many_lost_ones_is_notified", behind),
    ("a_message_whose_owner_has_a_full_backlog_is_notified_once_it_can_be_received", full_backlog),
    ("a_message_that_never_becomes_available_is_retried_at_intervals", never),
];

const UID: u64 = 0xbad0_0000_0000_0002;
/// The uid of another owner's pool.
const OTHER: u64 = 0xbad0_0000_0000_0005;

/// A topic with a hostile and an honest publisher.
struct Setup {
    topic: Topic<u64>,
    honest: Topic<u64>,
    endpoint: FakeEndpoint,
}

impl Setup {
    fn new() -> Setup {
        let name = unique();
        let honest: Topic<u64> = Topic::new(&name).unwrap();
        honest.advertise().unwrap();
        Setup { endpoint: fake_endpoint(&name, UID), topic: Topic::new(&name).unwrap(), honest }
    }

    /// Subscribes, while the hostile publisher runs `act` on the first connection. Returns the connection.
    fn subscribed(&self, act: impl FnOnce(&Raw) + Send) -> Raw {
        std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                let raw = self.endpoint.accept_request();
                act(&raw);
                raw
            });
            let _ = self.topic.subscribe();
            served.join().unwrap()
        })
    }

    /// Asserts that all messages of the honest publisher arrive. The hostile one does not send these numbers.
    fn works(&self) {
        let honest = 1_000_000..1_000_020_u64;
        assert_eq!(self.honest.wait_for_subscribers(1, Duration::from_secs(60)).unwrap(), 1);
        for number in honest {
            self.honest.send(&number).unwrap();
            eventually("it arrives", || self.topic.recv() == Some(number));
        }
    }
}

fn valid() {
    let (setup, publisher) = (Setup::new(), FakePublisher::honest(UID));
    let _connection = setup.subscribed(|raw| publisher.answer(raw));
    eventually("both are connected", || setup.topic.stats().publishers == 2);
    for number in 0..3 {
        publisher.publish(number, &[number + 40]);
        assert_eq!(setup.topic.recv(), Some(number + 40));
    }
    (3..10).for_each(|number| publisher.publish(number, &[number]));
    let rest: Vec<u64> = std::iter::from_fn(|| setup.topic.recv()).collect();
    assert_eq!((rest, setup.topic.missed()), (vec![6, 7, 8, 9], 3));
    publisher.write(CLOSED, 1);
    assert_eq!((setup.topic.recv(), setup.topic.stats().publishers), (None, 1));
    setup.works();
}

fn write_only(len: u64) -> OwnedFd {
    let fd = memfd(len, SEALS);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    std::fs::OpenOptions::new().write(true).open(path).unwrap().into()
}

fn rings() {
    let spoils: &[fn(&mut FakePublisher)] = &[
        |p| p.reply.uid ^= 1,
        |p| p.reply.depth = 0,
        |p| p.reply.depth = 9,
        |p| p.reply.depth = 1 << 16,
        |p| p.reply.depth = (1 << 16) + 1,
        |p| p.reply.depth = u64::MAX,
        |p| p.reply.payload = 14,
        |p| p.reply.payload = 1 << 13,
        |p| p.reply.payload = u64::MAX,
        |p| p.fds.clear(),
        |p| drop(p.fds.pop()),
        |p| p.fds.push(memfd(4096, SEALS)),
        |p| p.fds.extend((0..200).map(|_| memfd(8, SEALS))),
        |p| p.fds[0] = memfd(768, ROW_SEALS),
        |p| p.fds[0] = memfd(768, SealFlags::FUTURE_WRITE),
        |p| p.fds[0] = memfd(767, SEALS),
        |p| p.fds[0] = memfd(0, SEALS),
        |p| p.fds[0] = write_only(768),
        |p| p.fds[0] = std::fs::File::open("/dev/zero").unwrap().into(),
        |p| p.fds[0] = std::io::pipe().unwrap().0.into(),
        |p| p.fds[1] = memfd(256, SealFlags::empty()),
        |p| p.fds[1] = memfd(255, ROW_SEALS),
        |p| p.fds[1] = memfd(256, SEALS),
        |p| p.fds[1] = std::fs::File::open("/").unwrap().into(),
    ];
    for (number, spoil) in spoils.iter().enumerate() {
        let (setup, mut publisher) = (Setup::new(), FakePublisher::honest(UID));
        publisher.publish(0, &[4]);
        spoil(&mut publisher);
        let connection = setup.subscribed(|raw| publisher.answer(raw));
        setup.works();
        assert_eq!(setup.topic.stats().publishers, 1, "lie {number} was believed");
        assert!(connection.is_disconnected(), "lie {number}");
    }
}

fn answers() {
    let honest = FakePublisher::honest(UID).reply.encode();
    let kinds = [0, ATTACH, ATTACHED, REFUSED, WAKE, SUBSCRIBE, SUBSCRIBED, MISMATCH, 11, u32::MAX];
    let mut lies: Vec<Vec<u8>> = kinds.map(|kind| packet(kind, 0, 0)).into();
    lies.extend([1, 8, 24, 48, 71].map(|len| honest[..len].to_vec()));
    lies.push([honest, vec![0]].concat());
    lies.push(vec![0xff; 60_000]);
    let fd = memfd(4096, SEALS);
    for lie in lies {
        for fds in [&[][..], &[fd.as_fd(), fd.as_fd()]] {
            let setup = Setup::new();
            let connection = setup.subscribed(|raw| drop(raw.send(&lie, fds)));
            setup.works();
            assert!(connection.is_disconnected());
        }
    }
}

fn mismatch() {
    let long = "x".repeat(SIGNATURE - 24);
    let mut garbage = signature(0, u32::MAX, u64::MAX, "\u{1b}[31mred");
    garbage[16..24].copy_from_slice(&u64::MAX.to_ne_bytes());
    for theirs in [vec![0xff; SIGNATURE], vec![0; SIGNATURE], signature(9, 0, 0, &long), garbage] {
        let name = unique();
        let endpoint = fake_endpoint(&name, UID);
        let topic: Topic<u64> = Topic::new(&name).unwrap();
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                let raw = endpoint.accept_request();
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

/// The publisher refuses for want of room, memory or descriptors. Nothing notifies the subscriber of the end.
fn shortage() {
    for code in [2, 3, 5] {
        let (setup, publisher) = (Setup::new(), FakePublisher::honest(UID));
        drop(setup.subscribed(|raw| raw.send(&packet(REFUSED, code, 0), &[]).unwrap()));
        assert!(setup.endpoint.has_connection_within(TIMEOUT), "refusal {code}");
        let raw = setup.endpoint.accept_request();
        publisher.answer(&raw);
        publisher.publish(0, &[7]);
        eventually("its message arrives", || setup.topic.recv() == Some(7));
        setup.works();
    }
    // A subscriber of tensors attaches to the pool first.
    let name = unique();
    let (endpoint, topic) = (fake_endpoint(&name, UID), Topic::<Tensor>::new(&name).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| endpoint.accept_request().send(&packet(REFUSED, 3, 0), &[]).unwrap());
        topic.subscribe().unwrap();
    });
    assert!(endpoint.has_connection_within(TIMEOUT));
}

/// One publisher accepts connections and never answers. Other files in the directory are no sockets.
fn silence() {
    let setup = Setup::new();
    std::fs::write(topic_dir(setup.topic.name()).join(format!("file@{:016x}", UID + 1)), "")
        .unwrap();
    std::fs::create_dir(topic_dir(setup.topic.name()).join(format!("dir@{:016x}", UID + 2)))
        .unwrap();
    setup.topic.subscribe().unwrap();
    setup.works();
    // A late answer is accepted, too.
    let (raw, publisher) = (setup.endpoint.accept_request(), FakePublisher::honest(UID));
    publisher.answer(&raw);
    publisher.publish(0, &[5]);
    eventually("its message arrives", || setup.topic.recv() == Some(5));
    setup.works();
}

/// Writes wrong values into every word of the ring.
fn words() {
    let lies = [1, 2, 3, 1 << 32, u64::MAX / 2, u64::MAX / 2 - 20, 1 << 63, u64::MAX - 2, u64::MAX];
    let (setup, publisher) = (Setup::new(), FakePublisher::honest(UID));
    let _connection = setup.subscribed(|raw| publisher.answer(raw));
    eventually("both are connected", || setup.topic.stats().publishers == 2);
    let entry = publisher.reply.entry(0);
    for word in [HEAD, WAITING, entry + END, entry + LEN, entry + BEGIN, entry + 2] {
        for (lie, other) in lies.iter().flat_map(|lie| lies.map(|other| (*lie, other))) {
            publisher.write(word, lie);
            publisher.write(HEAD, other);
            for sequence in 0..4 {
                let entry = publisher.reply.entry(sequence);
                publisher.write(entry + END, lie.wrapping_add(sequence));
                publisher.write(entry + BEGIN, lie.wrapping_add(sequence));
                publisher.write(entry + LEN, other);
            }
            for _ in 0..20 {
                setup.topic.recv();
                setup.topic.latest();
            }
        }
        setup.works();
    }
    assert!(setup.topic.missed() > 0);
}

/// Runs `act` while a thread writes random words into the ring.
fn scribbled(act: impl FnOnce(), publisher: &FakePublisher) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(13);
            while !stop.load(Ordering::Relaxed) {
                let word = random.below(publisher.reply.words());
                if word != CLOSED {
                    publisher.write(word, random.next() >> random.below(64));
                }
            }
        });
        let _stop = SetOnDrop(&stop);
        act();
    });
}

fn changing_ring() {
    let (setup, mut publisher) = (Setup::new(), FakePublisher::honest(UID));
    publisher.reply.waits = 1;
    let _connection = setup.subscribed(|raw| publisher.answer(raw));
    eventually("both are connected", || setup.topic.stats().publishers == 2);
    let act = || {
        for _ in 0..20_000 {
            setup.topic.recv();
        }
        setup.works();
    };
    scribbled(act, &publisher);
}

fn endless_packets() {
    let (setup, publisher) = (Setup::new(), FakePublisher::honest(UID));
    let raw = setup.subscribed(|raw| publisher.answer(raw));
    setup.topic.fd().unwrap();
    // In the end the subscriber does not read any more, and `send` must not wait for long.
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
        let _stop = SetOnDrop(&stop);
        for number in 0..200 {
            setup.honest.send(&number).unwrap();
            assert_eq!(setup.topic.wait().unwrap(), number);
        }
    });
}

/// A hostile publisher of tensors that a subscriber has accepted, with its pool: the subscriber, the
/// publisher, and its connections, that of the pool first.
pub(super) fn accepted(name: &str, uid: u64) -> (Topic<Tensor>, FakePublisher, [Raw; 2]) {
    let endpoint = fake_endpoint(name, uid);
    let reply = Subscribed { payload: 100, ..FakePublisher::honest(uid).reply };
    let (pool, publisher) = (Answer::honest(uid), FakePublisher::of(reply));
    let topic: Topic<Tensor> = Topic::new(name).unwrap();
    let connections = std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            [0, 1].map(|_| {
                let raw = endpoint.accept();
                let (request, _) = raw.recv().unwrap();
                if kind(&request) == ATTACH {
                    pool.send(&raw);
                } else {
                    publisher.answer(&raw);
                }
                raw
            })
        });
        topic.subscribe().unwrap();
        served.join().unwrap()
    });
    eventually("it is connected", || topic.stats().publishers == 1);
    (topic, publisher, connections)
}

/// It sends words that describe no valid tensor.
fn descriptors() {
    let name = unique();
    let (topic, publisher, connections) = accepted(&name, UID);
    let honest: Topic<Tensor> = Topic::new(&name).unwrap();
    let mut random = Random(17);
    let mut received = 0;
    for sequence in 0..20_000 {
        // Some messages are valid: slot 3, 1000 bytes.
        let mut words = [2, 3 | 1 << 32 | 8 << 40, UID, 0, 0, 1000, 1];
        for _ in 0..random.below(4) {
            words[random.below(7)] = random.next() >> random.below(64);
        }
        publisher.publish(sequence, &words[..random.below(8).max(5)]);
        received += usize::from(topic.recv().is_some_and(|tensor| tensor.to_vec::<u8>().is_ok()));
    }
    assert!(received > 0 && topic.missed() > 0, "{received} {}", topic.missed());
    drop(connections);
    honest.send(&Tensor::from_vec(vec![1_u8; 10], &[10]).unwrap()).unwrap();
    eventually("the honest message arrives", || {
        topic.recv().is_some_and(|tensor| tensor.to_vec::<u8>().is_ok_and(|v| v == [1; 10]))
    });
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let time = Timespec::try_from(TIMEOUT).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&time)).unwrap() > 0
}

/// More lost messages than one `recv` skips.
fn behind() {
    let reply = Subscribed { depth: 256, ..FakePublisher::honest(UID).reply };
    let (setup, publisher) = (Setup::new(), FakePublisher::of(reply));
    let _connection = setup.subscribed(|raw| publisher.answer(raw));
    eventually("both are connected", || setup.topic.stats().publishers == 2);
    let fd = setup.topic.fd().unwrap();
    (0..200).for_each(|sequence| publisher.publish(sequence, &[]));
    publisher.publish(200, &[9]);
    while setup.topic.recv() != Some(9) {
        assert!(is_readable(fd), "after {}", setup.topic.missed());
    }
    assert_eq!(setup.topic.missed(), 200);
}

/// The words of a message: 1000 bytes in a slot of a pool.
fn message(pool: u64, slot: u64) -> [u64; 7] {
    [2, slot | 1 << 32 | 8 << 40, pool, 0, 0, 1000, 1]
}

/// The backlog of the owner's socket is full. Nothing notifies the subscriber when it has room.
fn full_backlog() {
    let (topic, publisher, _connections) = accepted(&unique(), UID);
    let (owner, answer) = (FakeEndpoint::new(OTHER), Answer::honest(OTHER));
    let connections = owner.fill_backlog();
    let fd = topic.fd().unwrap();
    publisher.publish(0, &message(OTHER, 3));
    assert!(topic.recv().is_none());
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            loop {
                assert!(owner.has_connection_within(TIMEOUT));
                let raw = owner.accept();
                if raw.recv().is_ok_and(|(request, _)| !request.is_empty()) {
                    answer.send(&raw);
                    return raw;
                }
            }
        });
        drop(connections);
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

/// The segment never arrives. A subscriber that polls the descriptor sleeps most of the time, even after
/// the publisher disconnected.
fn never() {
    let (topic, publisher, [_pool, ring]) = accepted(&unique(), UID);
    let fd = topic.fd().unwrap();
    publisher.publish(0, &message(UID, 7));
    let mostly_sleeps = || {
        let (start, mut rounds) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(100) {
            assert!(is_readable(fd) && topic.recv().is_none());
            rounds += 1;
        }
        rounds < start.elapsed().as_millis() + 5
    };
    assert!(mostly_sleeps());
    drop(ring);
    eventually("its end is noticed", mostly_sleeps);
    assert_eq!(topic.missed(), 0);
}
