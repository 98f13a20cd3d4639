//! Readers that send wrong messages to an owner, or none.

use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use cenote::{DType, Image, Tensor, TensorPool, TensorPoolConfig, Topic, TopicConfig};
use rustix::net::SocketAddrUnix;

use super::Test;
use crate::support::raw::pool::{
    Attached, GONE, HELLO, MORE, REFUSED, Raw, SEGMENT, SUBSCRIBED, WAKE, WELCOME, borrowed, hello,
    kind, packet,
};
use crate::support::raw::topic;
use crate::support::{TIMEOUT, all_are, eventually, filled, pool, pools_dir, unique};

pub(crate) const TESTS: &[Test] = &[
    ("hellos_of_every_length", lengths),
    ("hellos_of_other_versions_and_kinds", kinds),
    ("a_second_hello_ends_the_connection", twice),
    ("a_subscriber_cannot_attach_on_the_same_connection", both),
    ("questions_before_a_hello_get_nothing", early),
    ("descriptors_sent_to_the_owner_are_closed", fds),
    ("a_reader_that_never_receives_delays_no_other", never_reads),
    ("a_reader_that_disconnects_at_every_step", steps),
    ("a_reader_that_never_stops_sending_delays_no_other_peer", chatter),
];

/// A pool that still does all it should.
pub(crate) fn works(pool: &TensorPool) {
    let tensor = filled(pool, 1000, 7);
    let attached = Attached::to(pool.name());
    assert_eq!(attached.welcome.uid, pool.uid());
    let own = TensorPool::open(pool.name()).unwrap();
    assert!(all_are(&own.import(&tensor.descriptor().unwrap()).unwrap(), 7));
}

/// Nobody is attached any more.
fn alone(pool: &TensorPool) {
    eventually("all are gone", || pool.stats().unwrap().attachers == 0);
}

fn lengths() {
    let pool = pool(8);
    let valid = [hello(), vec![0xff; 600]].concat();
    for len in (0..=64).chain([65, 255, 256, 257, 511, 512, 513, 600]) {
        let raw = Raw::connect(pool.name());
        raw.send(&valid[..len], &[]).unwrap();
        if (24..=512).contains(&len) {
            assert!(Attached::welcomed(raw).is_some(), "{len}");
        } else {
            assert!(raw.is_hung_up(), "{len}");
        }
    }
    let raw = Raw::connect(pool.name());
    raw.send(&vec![0x5a; 100_000], &[]).unwrap();
    assert!(raw.is_hung_up());
    works(&pool);
}

fn kinds() {
    let pool = pool(8);
    let mut hellos: Vec<Vec<u8>> =
        [0, WELCOME, REFUSED, SEGMENT, GONE, 8, 0x100, u32::MAX].map(|k| packet(k, 0, 0)).into();
    for byte in 0..8 {
        let mut other = hello();
        other[byte] ^= 0x81;
        hellos.push(other);
    }
    for bytes in hellos {
        let raw = Raw::connect(pool.name());
        raw.send(&bytes, &[]).unwrap();
        assert!(raw.is_hung_up(), "{bytes:?}");
    }
    for (index, len) in [(u32::MAX, u64::MAX), (1, 1)] {
        let raw = Raw::connect(pool.name());
        raw.send(&packet(HELLO, index, len), &[]).unwrap();
        assert!(Attached::welcomed(raw).is_some(), "these words mean nothing in a hello");
    }
    works(&pool);
}

fn twice() {
    let pool = pool(8);
    let attached = Attached::to(pool.name());
    attached.raw.send(&hello(), &[]).unwrap();
    assert!(attached.raw.is_hung_up());
    let raw = Raw::connect(pool.name());
    for _ in 0..100 {
        let _ = raw.send(&hello(), &[]);
    }
    assert!(raw.is_hung_up());
    alone(&pool);
    works(&pool);
}

/// What somebody says who subscribes to images.
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
    for (first, second) in
        [(subscribe(), hello()), (hello(), subscribe()), (subscribe(), subscribe())]
    {
        let raw = Raw::try_connect(&socket).unwrap();
        raw.send(&first, &[]).unwrap();
        assert!([SUBSCRIBED, WELCOME].contains(&kind(&raw.recv().unwrap().0)));
        raw.send(&second, &[]).unwrap();
        assert!(raw.is_hung_up());
        eventually("nobody is left", || topic.stats().subscribers == 0);
        assert_eq!(topic.pool().unwrap().stats().unwrap().attachers, 0);
    }
}

fn early() {
    let pool = pool(8);
    let raw = Raw::connect(pool.name());
    for index in [0, 1, u32::MAX] {
        raw.send(&packet(MORE, index, 0), &[]).unwrap();
        raw.send(&packet(WAKE, index, u64::MAX), &[]).unwrap();
    }
    assert_eq!(pool.stats().unwrap().attachers, 0);
    raw.send(&hello(), &[]).unwrap();
    let attached = Attached::welcomed(raw).expect("nothing was sent before the welcome");
    for index in [0, 7, u32::MAX] {
        attached.raw.send(&packet(MORE, index, 1), &[]).unwrap();
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
        raw.send(&hello(), &borrowed(&given[..count])).unwrap();
        let attached = Attached::welcomed(raw).unwrap();
        attached.raw.send(&packet(WAKE, 0, 0), &[pipe.as_fd()]).unwrap();
        attached.raw.send(&packet(SEGMENT, 0, 4096), &borrowed(&given[..count])).unwrap();
        assert!(attached.raw.is_hung_up());
    }
    // Its own end of the connection, sent to the owner: nobody would ever see it hang up.
    let attached = Attached::to(pool.name());
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
    let deaf: Vec<Attached> = (0..4).map(|_| Attached::to(pool.name())).collect();
    let mute = Raw::connect(pool.name());
    mute.send(&hello(), &[]).unwrap();
    let honest = TensorPool::open(pool.name()).unwrap();
    for _ in 0..4 {
        let all = grow_and_shrink(&pool);
        for (tensor, value) in all.iter().zip(0..) {
            let descriptor = tensor.descriptor().unwrap();
            assert!(all_are(&honest.import(&descriptor).unwrap(), value));
        }
        // All but the first ask for more, and do not read that either.
        for attached in &deaf[1..] {
            attached.raw.send(&packet(MORE, 0, 0), &[]).unwrap();
        }
    }
    assert_eq!(pool.stats().unwrap().attachers, deaf.len() + 2);
    // What lies unread is bounded.
    let mut unread = 0;
    deaf[0].raw.be_brief();
    while let Ok((_, fds)) = deaf[0].raw.recv() {
        unread += fds.len();
    }
    assert!((1..=16).contains(&unread), "{unread}");
}

fn steps() {
    let pool = pool(8);
    let tensor = filled(&pool, 100, 3);
    for _ in 0..20 {
        drop(Raw::connect(pool.name()));
        for len in [0, 1, 23, 24] {
            let raw = Raw::connect(pool.name());
            raw.send(&hello()[..len], &[]).unwrap();
        }
        for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
            let stream = UnixStream::from(Raw::connect(pool.name()).0);
            stream.shutdown(how).unwrap();
            let raw = Raw(stream.into());
            let _ = raw.send(&hello(), &[]);
            let attached = Attached::to(pool.name());
            let stream = UnixStream::from(attached.raw.0);
            stream.shutdown(how).unwrap();
        }
        drop(Attached::to(pool.name()));
        Attached::to(pool.name()).write_row(|_| 1);
    }
    alone(&pool);
    tensor.descriptor().unwrap();
    drop(tensor);
    works(&pool);
    assert_eq!(pool.stats().unwrap().retired, 0);
}

/// It works until then, and quickly: if not while the machine is busy with something else, then later.
pub(crate) fn works_quickly(until: Instant, mut works: impl FnMut()) {
    let mut quickest = Duration::MAX;
    while Instant::now() < until || quickest >= Duration::from_secs(3) {
        let start = Instant::now();
        works();
        quickest = quickest.min(start.elapsed());
        assert!(start < until + TIMEOUT, "it took {quickest:?} at least");
    }
}

/// Threads that send as fast as they can, while others attach.
fn chatter() {
    let pool = pool(8);
    let talkers: Vec<Attached> = (0..3).map(|_| Attached::to(pool.name())).collect();
    let until = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for talker in &talkers {
            scope.spawn(move || {
                while Instant::now() < until && talker.raw.send(&packet(WAKE, 0, 0), &[]).is_ok() {}
            });
        }
        works_quickly(until, || works(&pool));
    });
    pool.alloc(&[10], DType::U8).unwrap();
}
