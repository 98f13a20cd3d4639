//! Sending a received tensor again: no byte is copied, however many processes it passes.

use std::time::Duration;

use cenote::{Error, Tensor, Topic};
use rustix::time::ClockId;

use super::child::numbered_message::Sample;
use super::child::{LONG, copies, publisher, range, take, topic};
use super::wait::cpu_time;
use super::{Role, Test};
use crate::support::peer::{Peer, reply, serve};
use crate::support::{emulated, eventually, sanitized, unique};

pub(crate) const TESTS: &[Test] = &[
    ("a_chain_of_four_processes_copies_nothing", chain),
    ("a_tensor_that_comes_back_is_the_same_memory", round_trip),
    ("a_tensor_forwarded_after_its_owner_died_is_staged", owner_gone),
    ("a_tensor_forwarded_before_its_owner_died_is_missed_and_reported", lost),
    ("a_stopped_owner_delays_only_its_own_tensors", stopped),
];

pub(crate) const ROLES: &[Role] = &[("relay", relay)];

/// Receives from one topic and sends to another, on command.
fn relay(words: &[&str]) {
    let (from, to) = (topic::<Tensor>(words[0], ""), topic::<Tensor>(words[1], ""));
    let mut kept: Vec<Tensor> = Vec::new();
    serve(|words| match *words {
        ["start"] => reply(from.subscribe().and_then(|()| to.advertise())),
        ["subscribers"] => to.wait_for_subscribers(1, LONG).unwrap().to_string(),
        ["keep", count] => {
            let next = || from.recv_timeout(LONG).unwrap().expect("a message");
            kept.extend(std::iter::repeat_with(next).take(count.parse().unwrap()));
            "ok".into()
        }
        ["orphaned"] => kept.iter().all(|it| it.is_attachable() == Some(false)).to_string(),
        ["send"] => reply(kept.drain(..).try_for_each(|tensor| to.send(&tensor))),
        ["echo", count] => {
            for _ in 0..count.parse().unwrap() {
                to.send(&from.wait().unwrap()).unwrap();
            }
            "ok".into()
        }
        ["copies"] => copies(&to),
        _ => panic!("{words:?}"),
    });
}

fn started(from: &str, to: &str) -> Peer {
    let mut relay = Peer::start(&format!("relay {from} {to}"));
    assert_eq!(relay.request("start"), "ok");
    relay
}

/// Makes the relay forward `count` messages.
fn pass(relay: &mut Peer, count: usize) {
    assert_eq!(relay.request(&format!("keep {count}")), "ok");
    assert_eq!(relay.request("send"), "ok");
}

/// A publisher, a relay that receives from it, and a topic that receives from the relay.
fn three() -> (Peer, Peer, Topic<Tensor>) {
    let [from, to] = [unique(), unique()];
    let mut origin = publisher("tensor", &from, "");
    let mut relay = started(&from, &to);
    let topic = topic::<Tensor>(&to, "");
    topic.subscribe().unwrap();
    assert_eq!(
        (origin.request("subscribers 1"), relay.request("subscribers")),
        ("1".into(), "1".into())
    );
    (origin, relay, topic)
}

fn chain() {
    let names: Vec<String> = (0..4).map(|_| unique()).collect();
    let mut origin = publisher("tensor", &names[0], "");
    let mut relays: Vec<Peer> = names.windows(2).map(|pair| started(&pair[0], &pair[1])).collect();
    let end = topic::<Tensor>(&names[3], "");
    end.subscribe().unwrap();
    assert_eq!(origin.request("subscribers 1"), "1");
    relays.iter_mut().for_each(|relay| assert_eq!(relay.request("subscribers"), "1"));
    for round in 0..5 {
        let numbers = 10 * round..10 * round + 10;
        assert_eq!(origin.request(&format!("send {} {}", numbers.start, numbers.end)), "ok");
        relays.iter_mut().for_each(|relay| pass(relay, 10));
        assert_eq!(take(&end, 10), numbers.collect::<Vec<_>>());
    }
    assert_eq!((end.missed(), origin.request("copies")), (0, "0".into()));
    relays.iter_mut().for_each(|relay| assert_eq!(relay.request("copies"), "0"));
    // A forwarded slot is free again once no process leases it: otherwise 256 slots would not last.
    for round in 0..40 {
        let first = 50 + 10 * round;
        assert_eq!(origin.request(&format!("send {first} {}", first + 10)), "ok");
        relays.iter_mut().for_each(|relay| pass(relay, 10));
        assert_eq!(super::child::show(&take(&end, 10)), range(first..first + 10));
    }
}

fn round_trip() {
    let [there, back] = [unique(), unique()];
    let mut relay = started(&there, &back);
    let (out, returned) = (topic::<Tensor>(&there, "ignore_own"), topic::<Tensor>(&back, ""));
    returned.subscribe().unwrap();
    assert_eq!(out.wait_for_subscribers(1, LONG).unwrap(), 1);
    assert_eq!(relay.request("subscribers"), "1");
    let sent = Tensor::of(&out, 3).unwrap();
    out.send(&sent).unwrap();
    pass(&mut relay, 1);
    let received = returned.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(received.number(), 3);
    let address =
        |tensor: &Tensor| tensor.map().unwrap().as_slice::<u64>().unwrap().as_ptr().addr();
    assert_eq!(address(&sent), address(&received), "the very same bytes");
    assert_eq!(relay.request("copies"), "0");
}

fn owner_gone() {
    let (mut origin, mut relay, topic) = three();
    assert_eq!(origin.request("send 0 3"), "ok");
    assert_eq!(relay.request("keep 3"), "ok");
    origin.kill();
    eventually("the relay notices the death", || relay.request("orphaned") == "true");
    assert_eq!(relay.request("send"), "ok");
    assert_eq!(take(&topic, 3), [0, 1, 2]);
    assert_eq!((relay.request("copies"), topic.missed()), ("3 OwnerGone 3".into(), 0));
}

fn lost() {
    let (mut origin, mut relay, topic) = three();
    assert_eq!(origin.request("send 0 2"), "ok");
    pass(&mut relay, 2);
    // The subscriber has not received yet, so it has not attached to the pool of the origin.
    origin.kill();
    eventually("both are given up", || {
        assert!(topic.recv().is_none());
        topic.missed() == 2
    });
    let why = topic.last_loss().expect("a reason");
    assert!(matches!(why, Error::NoSuchPool { .. }), "{why}");
    assert!(topic.last_loss().is_none(), "reported once");
}

/// While its owner is stopped, a forwarded message stays in the queue. Messages of other publishers arrive.
fn stopped() {
    let (mut origin, mut relay, topic) = three();
    let mut other = publisher("tensor", topic.name(), "");
    assert_eq!(other.request("subscribers 1"), "1");
    assert_eq!(origin.request("send 0 1"), "ok");
    pass(&mut relay, 1);
    origin.signal(libc::SIGSTOP);
    assert_eq!(other.request("send 5 7"), "ok");
    assert_eq!(take(&topic, 2), [5, 6]);
    assert_eq!(topic.missed(), 0);
    let asleep = cpu_time(ClockId::ThreadCPUTime, || {
        assert!(topic.recv_timeout(Duration::from_secs(1)).unwrap().is_none());
    });
    // Each retry costs more in an emulator or under a sanitizer.
    let most = Duration::from_millis(if emulated() || sanitized() { 600 } else { 100 });
    assert!(asleep < most, "it slept, and used {asleep:?}");
    origin.signal(libc::SIGCONT);
    assert_eq!((take(&topic, 1), topic.missed()), (vec![0], 0));
}
