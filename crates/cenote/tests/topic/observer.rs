//! Observing topics and pools without being a subscriber or reader.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use cenote::{
    Content, CopyReason, DType, Image, Observer, PixelFormat, PoolAccount, PoolInfo, PublisherInfo,
    StagedBecause, Tensor, TensorMemory, Topic, namespace_dir, pools, topics,
};

use rustix::io::Errno;
use rustix::net;

use super::Test;
use super::child::{publisher, send, subscriber, topic};
use crate::support::{eventually, topic_dir, unique};

pub(crate) const TESTS: &[Test] = &[
    ("an_observer_sees_every_message_and_is_not_counted", sees_all),
    ("no_policy_waits_for_an_observer", does_not_block),
    ("an_observer_leases_only_what_it_requests", leases),
    ("newest_skips_older_messages", newest),
    ("an_observer_alternates_between_publishers", turns),
    ("a_copied_out_message_is_not_leased_any_more", copied_out),
    ("stopped_publishers_do_not_delay_observers", stopped),
    ("a_publisher_whose_backlog_is_full_is_listed", full_backlog),
    ("invalid_names_are_not_listed", names),
    ("an_observer_continues_when_publishers_start_and_die", publishers_change),
    ("subscribers_that_wait_for_a_publisher_are_listed", waiting),
    ("publishers_report_their_copies_and_reasons", copies),
    ("owners_report_their_readers_and_leases", accounts),
];

/// The report of a publisher. Waits until the publisher answers.
fn info(name: &str) -> PublisherInfo {
    let mut info = None;
    eventually("it answers", || {
        let found = topics().unwrap().into_iter().find(|topic| topic.name == name).unwrap();
        info = found.publishers.into_iter().next().filter(|found| found.carries.is_some());
        info.is_some()
    });
    info.unwrap()
}

fn pool_of(name: &str) -> PoolInfo {
    pools().unwrap().into_iter().find(|pool| pool.name == name).unwrap()
}

/// The report of the owner of a pool. Waits until the owner answers.
fn account_of(name: &str) -> PoolAccount {
    let mut account = None;
    eventually("it answers", || {
        account = pool_of(name).account;
        account.is_some()
    });
    account.unwrap()
}

fn sees_all() {
    let name = unique();
    let topic: Topic<Image> = topic(&name, "depth=4,ignore_own");
    topic.advertise().unwrap();
    let mut observer = Observer::new(&name).unwrap();
    assert_eq!(observer.publishers(), 1);
    for number in 0..3 {
        let mut image = topic.image(8, 4, PixelFormat::Rgb8).unwrap();
        image.set_stamp_ns(100 + number);
        topic.send(&image).unwrap();
        let seen = observer.look().unwrap().unwrap();
        assert_eq!((seen.sequence, seen.nbytes, &*seen.shape), (number, 96, &[4, 8, 3][..]));
        assert_eq!((seen.dtype, seen.format), (Some(DType::U8), Some(PixelFormat::Rgb8)));
        assert_eq!(seen.header.unwrap().stamp_ns, 100 + number);
        assert_eq!(seen.carries, "Image");
    }
    assert!(observer.look().unwrap().is_none());
    assert_eq!(topic.stats().subscribers, 0);
    assert_eq!(topic.pool().unwrap().stats().unwrap().attachers, 0);
    assert_eq!(topic.wait_for_subscribers(1, Duration::ZERO).unwrap(), 0);
    assert!(info(&name).subscribers.is_empty());
}

fn does_not_block() {
    for policy in ["wait", "reject"] {
        let name = unique();
        let topic: Topic<u64> = topic(&name, &format!("depth=2,{policy},ignore_own"));
        topic.advertise().unwrap();
        let mut observer = Observer::new(&name).unwrap();
        (0..100).for_each(|number| topic.send(&number).unwrap());
        let seen: Vec<u64> =
            std::iter::from_fn(|| observer.look().unwrap()).map(|seen| seen.sequence).collect();
        assert_eq!((seen, observer.missed()), (vec![98, 99], 98));
    }
}

fn leases() {
    let name = unique();
    let topic: Topic<Tensor> = topic(&name, "depth=1,slots=8,ignore_own");
    topic.advertise().unwrap();
    let mut observer = Observer::new(&name).unwrap();
    let send = |value: u8| {
        let mut tensor = topic.alloc_tensor(&[64], DType::U8).unwrap();
        tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(value);
        topic.send(&tensor).unwrap();
    };
    send(1);
    let first = observer.look().unwrap().unwrap();
    let newest = observer.newest().unwrap().unwrap();
    assert_eq!((first.sequence, newest.sequence), (0, 0), "newest ignores what was seen before");
    let kept = observer.content(&first).unwrap().unwrap();
    // The first message does not change while it is leased, and the ring continues.
    (2..20).for_each(send);
    let tensor = kept.tensor().unwrap();
    assert_eq!(tensor.map().unwrap().as_slice::<u8>().unwrap(), [1; 64]);
    let seen = observer.look().unwrap().unwrap();
    drop(kept);
    (20..40).for_each(send);
    assert!(observer.content(&seen).unwrap().is_none(), "it was not leased, so it was reused");
    let newest = observer.newest().unwrap().unwrap();
    let Some(Content::Tensor(tensor)) = observer.content(&newest).unwrap() else { panic!() };
    assert_eq!(tensor.map().unwrap().as_slice::<u8>().unwrap(), [39; 64]);
}

fn newest() {
    let name = unique();
    let topic: Topic<u64> = topic(&name, "depth=8,ignore_own");
    topic.advertise().unwrap();
    let mut observer = Observer::new(&name).unwrap();
    (0..5).for_each(|number| topic.send(&number).unwrap());
    for _ in 0..2 {
        assert_eq!(observer.newest().unwrap().unwrap().sequence, 4);
    }
    assert!(observer.look().unwrap().is_none(), "older messages are skipped");
    topic.send(&5).unwrap();
    assert_eq!(observer.look().unwrap().unwrap().sequence, 5);
    assert_eq!(observer.missed(), 0, "skipping was requested");
}

fn turns() {
    let name = unique();
    let [busy, calm] = [(); 2].map(|()| topic::<u64>(&name, "depth=8,ignore_own"));
    busy.advertise().unwrap();
    calm.advertise().unwrap();
    let mut observer = Observer::new(&name).unwrap();
    (0..8).for_each(|number| busy.send(&number).unwrap());
    calm.send(&0).unwrap();
    let first: Vec<u64> = (0..2).map(|_| observer.look().unwrap().unwrap().publisher).collect();
    assert_ne!(first[0], first[1]);
}

fn copied_out() {
    let name = unique();
    let topic: Topic<Image> = topic(&name, "depth=1,slots=8,ignore_own");
    topic.advertise().unwrap();
    let send = |value: u8| {
        let mut image = topic.image(8, 4, PixelFormat::Rgb8).unwrap();
        image.fill(&[value; 3]).unwrap();
        image.set_seq(value.into());
        topic.send(&image).unwrap();
    };
    send(1);
    let mut observer = Observer::new(&name).unwrap();
    let seen = observer.newest().unwrap().unwrap();
    let content = observer.content(&seen).unwrap().unwrap();
    let retired = || topic.pool().unwrap().stats().unwrap().retired;
    send(2);
    assert_eq!(retired(), 1, "it is held");
    let Content::Image(image) = content.copied_out().unwrap() else { panic!() };
    (3..9).for_each(send);
    assert_eq!(retired(), 0);
    assert_eq!((image.seq(), image.pixel_as::<[u8; 3]>(7, 3).unwrap()), (1, [1; 3]));
    assert_eq!(image.tensor().memory(), TensorMemory::Mem);
}

/// With this many publishers, waiting for one after the other would take seconds.
fn stopped() {
    let name = unique();
    let publishers: Vec<_> = (0..12).map(|_| publisher("tensor", &name, "")).collect();
    publishers.iter().for_each(|publisher| publisher.signal(libc::SIGSTOP));
    let quickly = |what: &str, act: &mut dyn FnMut()| {
        eventually(what, || {
            let start = Instant::now();
            act();
            start.elapsed() < Duration::from_secs(1)
        });
    };
    quickly("topics are listed", &mut || {
        let found = topics().unwrap().into_iter().find(|topic| topic.name == name).unwrap();
        assert_eq!(found.publishers.len(), 12);
    });
    quickly("pools are listed", &mut || {
        assert_eq!(pools().unwrap().iter().filter(|pool| pool.name == name).count(), 12);
    });
    quickly("an observer is made", &mut || drop(Observer::new(&name).unwrap()));
    let mut observer = Observer::new(&name).unwrap();
    quickly("an observer looks", &mut || {
        (0..50).for_each(|_| assert!(observer.newest().unwrap().is_none()));
    });
    publishers.iter().for_each(|publisher| publisher.signal(libc::SIGCONT));
    eventually("they are observed when they continue", || {
        observer.newest().unwrap();
        observer.publishers() == 12
    });
}

/// The backlog of the stopped publisher's socket is full, so no other process can connect.
fn full_backlog() {
    let name = unique();
    let mut stopped = publisher("tensor", &name, "");
    let mut waits = subscriber("tensor", &name, "");
    assert_eq!(stopped.request("subscribers 1"), "1");
    assert_eq!(waits.request("recv"), "none");
    stopped.signal(libc::SIGSTOP);
    let socket = std::fs::read_dir(topic_dir(&name)).unwrap().next().unwrap().unwrap().path();
    let connections: Vec<OwnedFd> = std::iter::from_fn(|| try_connect(&socket)).collect();
    assert!(connections.len() > 64, "{}", connections.len());
    let found = topics().unwrap().into_iter().find(|topic| topic.name == name).unwrap();
    assert_eq!((found.publishers.len(), found.waiting.len()), (1, 0));
    assert_eq!((&found.publishers[0].carries, found.publishers[0].closed), (&None, false));
    assert!(pool_of(&name).account.is_none());
    drop(connections);
    stopped.signal(libc::SIGCONT);
    assert_eq!(info(&name).pid, stopped.pid().cast_signed(), "it answers again");
}

/// Connects to a socket; `None` if its backlog is full.
fn try_connect(socket: &Path) -> Option<OwnedFd> {
    let (family, kind) = (net::AddressFamily::UNIX, net::SocketType::SEQPACKET);
    let connection = net::socket_with(family, kind, net::SocketFlags::NONBLOCK, None).unwrap();
    match net::connect(&connection, &net::SocketAddrUnix::new(socket).unwrap()) {
        Err(Errno::AGAIN) => None,
        done => Some(done.map(|()| connection).unwrap()),
    }
}

/// A process that may write to the directory may create any name there.
fn names() {
    let name = unique();
    let topic: Topic<u64> = topic(&name, "ignore_own");
    topic.advertise().unwrap();
    let dir = namespace_dir().unwrap().join("topics");
    let socket = |path: std::path::PathBuf| UnixListener::bind(path).unwrap();
    let bad = ["\u{1b}[2J", "a b", "a..b", "é"].map(|bad| dir.join(format!("{bad}{name}")));
    bad.iter().for_each(|bad| std::fs::create_dir(bad).unwrap());
    let inside = bad.iter().map(|bad| socket(bad.join("x@00000000000000ff")));
    let inside: Vec<_> =
        inside.chain([socket(dir.join(&name).join("\u{1b}[2J@00000000000000fe"))]).collect();
    let (topics, pools) = (topics().unwrap(), pools().unwrap());
    let publishers = |name: &str| {
        topics.iter().find(|topic| topic.name == name).map(|topic| topic.publishers.len())
    };
    assert_eq!(publishers(&name), Some(1));
    for text in topics.iter().map(|topic| &topic.name).chain(pools.iter().map(|pool| &pool.name)) {
        assert!(Topic::<u64>::new(text).is_ok() && text != "x", "{text:?}");
    }
    drop(inside);
    bad.iter().for_each(|bad| std::fs::remove_dir_all(bad).unwrap());
    std::fs::remove_file(dir.join(&name).join("\u{1b}[2J@00000000000000fe")).unwrap();
}

fn publishers_change() {
    let name = unique();
    let mut observer = Observer::new(&name).unwrap();
    assert_eq!((observer.publishers(), observer.look().unwrap().is_none()), (0, true));
    let mut first = publisher("tensor", &name, "");
    assert_eq!(first.request("send 0 3"), "ok");
    let mut seen = Vec::new();
    eventually("all of a later publisher are seen", || {
        seen.extend(observer.look().unwrap());
        seen.len() == 3
    });
    first.kill();
    assert!(observer.content(&seen[0]).unwrap().is_none(), "its owner is dead");
    let mut second = publisher("tensor", &name, "");
    assert_eq!(second.request("send 0 1"), "ok");
    eventually("the next one is seen", || observer.look().unwrap().is_some());
    assert_eq!(observer.publishers(), 1);
}

fn waiting() {
    let name = unique();
    let found = || topics().unwrap().into_iter().find(|topic| topic.name == name);
    assert_eq!(found(), None);
    let mut waits = subscriber("tensor", &name, "");
    assert_eq!(waits.request("recv"), "none");
    let pid = waits.pid().cast_signed();
    let topic = found().unwrap();
    assert_eq!((topic.publishers.len(), topic.waiting.len()), (0, 1));
    assert_eq!((topic.waiting[0].pid, topic.waiting[0].behind), (pid, 0));
    assert!(!topic.waiting[0].program.is_empty());
    // Observers do not count.
    let _observer = Observer::new(&name).unwrap();
    assert_eq!(found().unwrap().waiting.len(), 1);
    let mut late = publisher("tensor", &name, "");
    assert_eq!(late.request("subscribers 1"), "1");
    let topic = found().unwrap();
    assert_eq!((topic.publishers.len(), topic.waiting.len()), (1, 0));
    late.kill();
    assert_eq!(found().unwrap().waiting[0].pid, pid, "it waits again");
    waits.kill();
    assert_eq!(found(), None);
}

fn copies() {
    let name = unique();
    let topic: Topic<Tensor> = topic(&name, "depth=4,ignore_own");
    send(&topic, 0).unwrap();
    assert_eq!((info(&name).copies, info(&name).depth, info(&name).waits), (vec![], 4, false));
    let heap = Tensor::options().memory(TensorMemory::Mem).create(&[100], DType::U8).unwrap();
    topic.send(&heap).unwrap();
    let report = info(&name);
    assert_eq!((report.copies.len(), report.copies[0].count, report.copies[0].bytes), (1, 1, 100));
    assert_eq!(report.copies[0].reason, StagedBecause::Heap);
    assert_eq!((report.sent, report.uid), (2, topic.pool().unwrap().uid()));
    let account = account_of(&name);
    let staged = account.copies.iter().find(|copies| copies.reason == CopyReason::Staged).unwrap();
    assert!(staged.bytes >= 100, "it counts the whole process, in which other tests run");
    assert_eq!(account.stats.bytes_copied, 100);
}

fn accounts() {
    let name = unique();
    let mut owner = publisher("tensor", &name, "depth=2");
    let mut holder = subscriber("tensor", &name, "");
    let (owner_pid, holder_pid) = (owner.pid().cast_signed(), holder.pid().cast_signed());
    assert_eq!(owner.request("subscribers 1"), "1");
    assert_eq!(owner.request("send 0 1"), "ok");
    assert_eq!(holder.request("keep"), "ok");
    assert_eq!(owner.request("send 1 9"), "ok");
    let pool = pool_of(&name);
    assert!(pool.of_topic && pool.pid == owner_pid && !pool.program.is_empty());
    let account = account_of(&name);
    assert_eq!((account.stats.attachers, account.stats.retired), (1, 1));
    let attached = account.processes.iter().find(|process| process.pid == holder_pid).unwrap();
    assert_eq!((attached.slots, attached.retired_slots), (1, 1));
    assert!(account.processes.iter().any(|process| process.pid == owner_pid));
    assert_eq!(account.processes.len(), 2);
    // A stopped owner does not answer, and is still listed.
    owner.signal(libc::SIGSTOP);
    eventually("it does not answer", || pool_of(&name).account.is_none());
    owner.signal(libc::SIGCONT);
    eventually("it answers again", || pool_of(&name).account.is_some());
}
