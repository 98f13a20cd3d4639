//! Readers that send invalid packets, or none.

use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use cenote::{DType, Image, Tensor, TensorPool, TensorPoolConfig, Topic, TopicConfig};
use rustix::net::SocketAddrUnix;

use super::Test;
use crate::support::raw::pool::{
    ATTACH, ATTACHED, REFUSED, Raw, RawReader, SEGMENT, SEGMENT_REMOVED, SEGMENT_REQUEST,
    SUBSCRIBED, WAKE, attach_request, borrowed, kind, packet,
};
use crate::support::raw::topic;
use crate::support::{TIMEOUT, all_are, eventually, filled, pool, pools_dir, unique};

pub(crate) const TESTS: &[Test] = &[
    ("attach_requests_of_every_length", lengths),
    ("attach_requests_of_other_versions_and_kinds", kinds),
    ("a_second_attach_request_ends_the_connection", twice),
    ("a_connection_cannot_both_subscribe_and_attach", both),
    ("requests_before_an_attach_request_get_no_answer", early),
    ("descriptors_sent_to_the_owner_are_closed", fds),
    ("a_reader_that_never_receives_does_not_delay_others", never_reads),
    ("disconnecting_at_every_step", steps),
    ("a_reader_that_sends_without_end_does_not_delay_others", endless_packets),
];

/// Asserts that the pool still accepts readers and shares tensors.
pub(crate) fn works(pool: &TensorPool) {
    let tensor = filled(pool, 1000, 7);
    let attached = RawReader::to(pool.name());
    assert_eq!(attached.reply.uid, pool.uid());
    let own = TensorPool::open(pool.name()).unwrap();
    assert!(all_are(&own.import(&tensor.descriptor().unwrap()).unwrap(), 7));
}

/// Waits until the pool has no reader.
fn alone(pool: &TensorPool) {
    eventually("all readers are disconnected", || pool.stats().unwrap().attachers == 0);
}

fn lengths() {
    let pool = pool(8);
    let valid = [attach_request(), vec![0xff; 600]].concat();
    for len in (0..=64).chain([65, 255, 256, 257, 511, 512, 513, 600]) {
        let raw = Raw::connect(pool.name());
        raw.send(&valid[..len], &[]).unwrap();
        if (24..=512).contains(&len) {
            assert!(RawReader::accepted(raw).is_some(), "{len}");
        } else {
            assert!(raw.is_disconnected(), "{len}");
        }
    }
    let raw = Raw::connect(pool.name());
    raw.send(&vec![0x5a; 100_000], &[]).unwrap();
    assert!(raw.is_disconnected());
    works(&pool);
}

fn kinds() {
    let pool = pool(8);
    let mut requests: Vec<Vec<u8>> =
        [0, ATTACHED, REFUSED, SEGMENT, SEGMENT_REMOVED, 8, 0x100, u32::MAX]
            .map(|k| packet(k, 0, 0))
            .into();
    for byte in 0..8 {
        let mut other = attach_request();
        other[byte] ^= 0x81;
        requests.push(other);
    }
    for bytes in requests {
        let raw = Raw::connect(pool.name());
        raw.send(&bytes, &[]).unwrap();
        assert!(raw.is_disconnected(), "{bytes:?}");
    }
    for (index, len) in [(u32::MAX, u64::MAX), (1, 1)] {
        let raw = Raw::connect(pool.name());
        raw.send(&packet(ATTACH, index, len), &[]).unwrap();
        assert!(
            RawReader::accepted(raw).is_some(),
            "these words have no meaning in an attach request"
        );
    }
    works(&pool);
}

fn twice() {
    let pool = pool(8);
    let attached = RawReader::to(pool.name());
    attached.raw.send(&attach_request(), &[]).unwrap();
    assert!(attached.raw.is_disconnected());
    let raw = Raw::connect(pool.name());
    for _ in 0..100 {
        let _ = raw.send(&attach_request(), &[]);
    }
    assert!(raw.is_disconnected());
    alone(&pool);
    works(&pool);
}

/// The request of a subscriber to images.
fn subscribe() -> Vec<u8> {
    topic::subscribe(&topic::signature(2, 0, 0, "Image"), 0)
}

fn both() {
    let config = TopicConfig { pool: TensorPoolConfig::small(), ..TopicConfig::default() };
    let topic = Topic::<Image>::with_config(&unique(), config).unwrap();
    topic.advertise().unwrap();
    let dir = pools_dir().with_file_name("topics").join(topic.name());
    let socket = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let socket = SocketAddrUnix::new(socket).unwrap();
    for (first, second) in [
        (subscribe(), attach_request()),
        (attach_request(), subscribe()),
        (subscribe(), subscribe()),
    ] {
        let raw = Raw::try_connect(&socket).unwrap();
        raw.send(&first, &[]).unwrap();
        assert!([SUBSCRIBED, ATTACHED].contains(&kind(&raw.recv().unwrap().0)));
        raw.send(&second, &[]).unwrap();
        assert!(raw.is_disconnected());
        eventually("no subscriber is left", || topic.stats().subscribers == 0);
        assert_eq!(topic.pool().unwrap().stats().unwrap().attachers, 0);
    }
}

fn early() {
    let pool = pool(8);
    let raw = Raw::connect(pool.name());
    for index in [0, 1, u32::MAX] {
        raw.send(&packet(SEGMENT_REQUEST, index, 0), &[]).unwrap();
        raw.send(&packet(WAKE, index, u64::MAX), &[]).unwrap();
    }
    assert_eq!(pool.stats().unwrap().attachers, 0);
    raw.send(&attach_request(), &[]).unwrap();
    let attached = RawReader::accepted(raw).expect("nothing was sent before the reply");
    for index in [0, 7, u32::MAX] {
        attached.raw.send(&packet(SEGMENT_REQUEST, index, 1), &[]).unwrap();
    }
    works(&pool);
}

fn fds() {
    let pool = pool(8);
    let given: Vec<OwnedFd> =
        (0..253).map(|_| std::fs::File::open("/proc/self/exe").unwrap().into()).collect();
    let (pipe, _end) = std::io::pipe().unwrap();
    for count in [1, 2, 64, 253] {
        let raw = Raw::connect(pool.name());
        raw.send(&attach_request(), &borrowed(&given[..count])).unwrap();
        let attached = RawReader::accepted(raw).unwrap();
        attached.raw.send(&packet(WAKE, 0, 0), &[pipe.as_fd()]).unwrap();
        attached.raw.send(&packet(SEGMENT, 0, 4096), &borrowed(&given[..count])).unwrap();
        assert!(attached.raw.is_disconnected());
    }
    // The reader sends its own end of the connection. If the owner kept it, it would never see the end.
    let attached = RawReader::to(pool.name());
    attached.raw.send(&packet(WAKE, 0, 0), &[attached.raw.0.as_fd()]).unwrap();
    drop(attached);
    alone(&pool);
    works(&pool);
}

fn grow_and_shrink(pool: &TensorPool) -> Vec<Tensor> {
    let all: Vec<Tensor> = (0..40).map(|value| filled(pool, 1 << 20, value)).collect();
    drop(all);
    pool.trim().unwrap();
    (0..40).map(|value| filled(pool, 1 << 20, value)).collect()
}

fn never_reads() {
    let config = TensorPoolConfig { growth: 1 << 20, ..TensorPoolConfig::small() };
    let pool = TensorPool::new(unique(), config).unwrap();
    let silent: Vec<RawReader> = (0..4).map(|_| RawReader::to(pool.name())).collect();
    let unread = Raw::connect(pool.name());
    unread.send(&attach_request(), &[]).unwrap();
    let honest = TensorPool::open(pool.name()).unwrap();
    for _ in 0..4 {
        let all = grow_and_shrink(&pool);
        for (tensor, value) in all.iter().zip(0..) {
            let descriptor = tensor.descriptor().unwrap();
            assert!(all_are(&honest.import(&descriptor).unwrap(), value));
        }
        // All except the first request more segments, and do not receive those either.
        for attached in &silent[1..] {
            attached.raw.send(&packet(SEGMENT_REQUEST, 0, 0), &[]).unwrap();
        }
    }
    assert_eq!(pool.stats().unwrap().attachers, silent.len() + 2);
    // The owner queues a limited number of descriptors.
    let mut queued = 0;
    silent[0].raw.set_short_timeout();
    while let Ok((_, fds)) = silent[0].raw.recv() {
        queued += fds.len();
    }
    assert!((1..=16).contains(&queued), "{queued}");
}

fn steps() {
    let pool = pool(8);
    let tensor = filled(&pool, 100, 3);
    for _ in 0..20 {
        drop(Raw::connect(pool.name()));
        for len in [0, 1, 23, 24] {
            let raw = Raw::connect(pool.name());
            raw.send(&attach_request()[..len], &[]).unwrap();
        }
        for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
            let stream = UnixStream::from(Raw::connect(pool.name()).0);
            stream.shutdown(how).unwrap();
            let raw = Raw(stream.into());
            let _ = raw.send(&attach_request(), &[]);
            let attached = RawReader::to(pool.name());
            let stream = UnixStream::from(attached.raw.0);
            stream.shutdown(how).unwrap();
        }
        drop(RawReader::to(pool.name()));
        RawReader::to(pool.name()).write_row(|_| 1);
    }
    alone(&pool);
    tensor.descriptor().unwrap();
    drop(tensor);
    works(&pool);
    assert_eq!(pool.stats().unwrap().retired, 0);
}

/// Calls `works` until that time, and until one call was quick: on a busy machine that may take longer.
pub(crate) fn works_quickly(until: Instant, mut works: impl FnMut()) {
    let mut quickest = Duration::MAX;
    while Instant::now() < until || quickest >= Duration::from_secs(3) {
        let start = Instant::now();
        works();
        quickest = quickest.min(start.elapsed());
        assert!(start < until + TIMEOUT, "it took {quickest:?} at least");
    }
}

/// Some readers send as fast as they can, while others attach.
fn endless_packets() {
    let pool = pool(8);
    let senders: Vec<RawReader> = (0..3).map(|_| RawReader::to(pool.name())).collect();
    let until = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for sender in &senders {
            scope.spawn(move || {
                while Instant::now() < until && sender.raw.send(&packet(WAKE, 0, 0), &[]).is_ok() {}
            });
        }
        works_quickly(until, || works(&pool));
    });
    pool.alloc(&[10], DType::U8).unwrap();
}
