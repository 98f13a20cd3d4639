//! A forked child can neither use nor disturb the topics of its parent.
#![allow(unsafe_code, reason = "fork")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{Error, Tensor, Topic};

use super::Test;
use super::child::numbered_message::Sample;
use super::child::{LONG, drain, send, subscriber, take, topic};
use crate::support::{SetOnDrop, unique};

pub(crate) const TESTS: &[Test] = &[
    ("a_forked_child_neither_sends_nor_receives", inherited),
    ("a_forked_child_of_a_thread_that_receives_does_not_hang", busy),
    ("a_forked_child_can_make_new_topics", own),
    ("a_forked_child_that_uses_an_inherited_unused_topic_gets_an_error", unused),
];

/// Runs `act` in a forked child, where it must return `true`.
fn in_child(act: impl FnOnce() -> bool) {
    // SAFETY: the child calls only this crate and `_exit`. The allocator and cenote keep their locks
    // usable across a fork.
    match unsafe { libc::fork() } {
        0 => {
            let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).unwrap_or(false);
            // SAFETY: ends the child at once, whatever state it is in.
            unsafe { libc::_exit(i32::from(!held)) };
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for our own child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "the child failed");
        }
    }
}

/// Starts a process with a raw `clone`, which cenote does not notice, and returns its pid. It has all
/// sockets of this process, and sleeps until it is killed.
pub(crate) fn sleeper() -> libc::pid_t {
    let flags = libc::c_long::from(libc::SIGCHLD);
    // SAFETY: the child makes system calls, and nothing else.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    if pid == 0 {
        // SAFETY: it takes a number. The alarm ends the process if the test does not.
        unsafe { libc::alarm(60) };
        loop {
            // SAFETY: it takes nothing.
            unsafe { libc::pause() };
        }
    }
    pid.try_into().unwrap()
}

/// Kills a [`sleeper`] whose parent has ended.
pub(crate) fn end_sleeper(pid: libc::pid_t) {
    // SAFETY: a process that a child of this test started, and that only this test ends.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

fn is_forked<T>(result: cenote::Result<T>) -> bool {
    result.is_err_and(|error| matches!(error, Error::ForkedTopic { .. }))
}

fn inherited() {
    let name = unique();
    let mut other = subscriber("tensor", &name, "");
    let topic = topic::<Tensor>(&name, "wait,depth=4");
    topic.subscribe().unwrap();
    assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
    (0..2).for_each(|number| send(&topic, number).unwrap());
    let message = Tensor::of(&topic, 9).unwrap();
    let inherited = topic.clone();
    in_child(move || {
        let nothing = topic.recv().is_none() && topic.latest().is_none();
        let waiting = is_forked(topic.wait())
            && is_forked(topic.recv_timeout(Duration::from_secs(5)))
            && is_forked(topic.fd())
            && is_forked(topic.subscribe())
            && is_forked(topic.advertise())
            && topic.pool().is_err()
            && topic.iter().next().is_none()
            && (0..2).all(|_| is_forked(topic.last_error().map_or(Ok(()), Err)));
        let sending = is_forked(topic.send(&message))
            && is_forked(topic.try_send(&message))
            && is_forked(topic.alloc_tensor(&[1], cenote::DType::U8))
            && is_forked(topic.image(4, 4, cenote::PixelFormat::Grey))
            && is_forked(topic.wait_for_subscribers(1, Duration::ZERO));
        topic.stats();
        topic.missed();
        drop((message, topic));
        nothing && waiting && sending
    });
    // The child changed nothing for the parent.
    send(&inherited, 2).unwrap();
    assert_eq!(take(&inherited, 3), [0, 1, 2]);
    assert_eq!(other.request("take 3"), "0 1 2");
    assert_eq!((inherited.stats().subscribers, other.request("publishers")), (1, "1".into()));
    drop(inherited);
    assert_eq!(other.request("recv"), "none");
}

/// A thread sends and receives all the time while the process forks.
fn busy() {
    let topic = topic::<Tensor>(&unique(), "");
    topic.subscribe().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                send(&topic, 0).unwrap();
                topic.recv();
            }
        });
        let _done = SetOnDrop(&done);
        for _ in 0..50 {
            in_child(|| {
                topic.stats().sent == 0 && topic.missed() == 0 && topic.last_loss().is_none()
            });
        }
    });
}

fn own() {
    let name = unique();
    let topic = topic::<Tensor>(&name, "");
    topic.subscribe().unwrap();
    send(&topic, 0).unwrap();
    in_child(|| {
        let own = super::child::topic::<Tensor>(&name, "");
        own.subscribe().is_ok()
            && own.wait_for_subscribers(1, LONG).unwrap() == 1
            && send(&own, 1).is_ok()
            && take(&own, 1) == [1]
    });
    assert_eq!(take(&topic, 1), [0]);
    assert_eq!((take(&topic, 1), drain(&topic)), (vec![1], vec![]));
}

/// Otherwise other processes would mistake its messages for those of the parent.
fn unused() {
    let topic: Topic<u64> = topic(&unique(), "");
    in_child(|| {
        is_forked(topic.send(&1))
            && is_forked(topic.advertise())
            && is_forked(topic.subscribe())
            && topic.recv().is_none()
            && is_forked(topic.last_error().map_or(Ok(()), Err))
            && is_forked(topic.wait())
    });
    topic.send(&2).unwrap();
    assert_eq!(drain(&topic), [2]);
}
