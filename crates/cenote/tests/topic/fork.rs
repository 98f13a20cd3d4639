//! What a forked child can do with its parent's topics: nothing, and no harm.
#![allow(unsafe_code, reason = "fork")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{Error, Tensor, Topic};

use super::Test;
use super::sample::Sample;
use super::talk::{LONG, drain, send, subscriber, take, topic};
use crate::support::unique;

pub(crate) const TESTS: &[Test] = &[
    ("a_forked_child_neither_sends_nor_receives", inherited),
    ("a_forked_child_of_a_thread_that_receives_does_not_hang", busy),
    ("a_forked_child_makes_topics_of_its_own", own),
    ("a_forked_child_that_inherits_an_unused_topic_is_told", unused),
];

/// Runs `act` in a forked child, where it must hold.
fn in_child(act: impl FnOnce() -> bool) {
    // SAFETY: the child calls only this crate and `_exit`; the lock of the allocator is whole
    // after a fork, and so are those of cenote.
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

/// Clones off a process that sleeps until it is killed, and has all sockets that this one has: cenote
/// hears nothing of it. Gives its pid.
pub(crate) fn sleeper() -> libc::pid_t {
    let flags = libc::c_long::from(libc::SIGCHLD);
    // SAFETY: the child makes system calls, and nothing else.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    if pid == 0 {
        // SAFETY: it takes a number. Should nobody kill it, this does.
        unsafe { libc::alarm(60) };
        loop {
            // SAFETY: it takes nothing.
            unsafe { libc::pause() };
        }
    }
    pid.try_into().unwrap()
}

/// Ends a [`sleeper`] whose parent is gone.
pub(crate) fn end_sleeper(pid: libc::pid_t) {
    // SAFETY: a process that a child of this test cloned off, and that only it ends.
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
    // Everything is as it was before.
    send(&inherited, 2).unwrap();
    assert_eq!(take(&inherited, 3), [0, 1, 2]);
    assert_eq!(other.request("take 3"), "0 1 2");
    assert_eq!((inherited.stats().subscribers, other.request("publishers")), (1, "1".into()));
    drop(inherited);
    assert_eq!(other.request("recv"), "none");
}

/// Somebody is in the midst of receiving whenever the process forks.
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
        for _ in 0..50 {
            in_child(|| {
                topic.stats().sent == 0 && topic.missed() == 0 && topic.last_loss().is_none()
            });
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn own() {
    let name = unique();
    let topic = topic::<Tensor>(&name, "");
    topic.subscribe().unwrap();
    send(&topic, 0).unwrap();
    in_child(|| {
        let own = super::talk::topic::<Tensor>(&name, "");
        own.subscribe().is_ok()
            && own.wait_for_subscribers(1, LONG).unwrap() == 1
            && send(&own, 1).is_ok()
            && take(&own, 1) == [1]
    });
    assert_eq!(take(&topic, 1), [0]);
    assert_eq!((take(&topic, 1), drain(&topic)), (vec![1], vec![]));
}

/// It would otherwise be taken for its parent's by everybody.
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
