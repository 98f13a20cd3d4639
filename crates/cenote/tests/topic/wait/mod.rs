//! Waiting for messages: it uses no processor time, and polling makes no system call.

pub(crate) mod wait_set;

use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cenote::{Tensor, Topic};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::child::numbered_message::Sample;
use crate::child::{LONG, drain, publisher, send, subscriber, take, topic, wait_for_publishers};
use crate::support::peer::{Peer, ROLE, serve};
use crate::support::{emulated, eventually, unique};
use crate::{Role, Test};

pub(crate) const TESTS: &[Test] = &[
    ("a_waiting_subscriber_uses_no_cpu", no_cpu),
    ("polling_makes_no_system_call", no_system_call),
    ("a_descriptor_is_readable_while_a_message_is_queued", readable_then_not),
    ("a_descriptor_reports_several_publishers_and_their_deaths", several),
    ("a_descriptor_is_readable_after_a_thread_took_the_message_before", beside),
    ("every_message_wakes_a_sleeping_subscriber", woken),
];

pub(crate) const ROLES: &[Role] =
    &[("waiting", waiting), ("without_system_calls", without_system_calls)];

/// The processor time that `act` takes: of this thread, or of the whole process, by `clock`.
pub(crate) fn cpu_time(clock: ClockId, act: impl FnOnce()) -> Duration {
    let now = || Duration::try_from(clock_gettime(clock)).unwrap();
    let start = now();
    act();
    now().saturating_sub(start)
}

/// Waits with some threads, and replies with the microseconds of processor time that they used. A thread
/// that receives a message continues to wait.
fn waiting(words: &[&str]) {
    let topic = topic::<Tensor>(words[0], "");
    let threads: usize = words[1].parse().unwrap();
    topic.subscribe().unwrap();
    let wait = |time| while topic.recv_timeout(time).unwrap().is_some() {};
    serve(|words| match *words {
        ["wait", millis] => {
            let time = Duration::from_millis(millis.parse().unwrap());
            let used = cpu_time(ClockId::ProcessCPUTime, || {
                std::thread::scope(|scope| {
                    (0..threads).for_each(|_| drop(scope.spawn(|| wait(time))));
                });
            });
            used.as_micros().to_string()
        }
        _ => panic!("{words:?}"),
    });
}

fn no_cpu() {
    // In an emulator, starting and ending a thread takes milliseconds. A thread that does not sleep uses a second.
    let most = if emulated() { 250_000 } else { 50_000 };
    for threads in [1, 2, 4] {
        let name = unique();
        let mut publishers: Vec<Peer> = (0..3).map(|_| publisher("tensor", &name, "")).collect();
        let mut waiting = Peer::start(&format!("waiting {name} {threads}"));
        for publisher in &mut publishers {
            assert_eq!(publisher.request("subscribers 1"), "1");
        }
        // The first round loads the code, and an emulator translates it.
        let mut woken = |millis: u32| -> u64 {
            waiting.write_line(&format!("wait {millis}"));
            eventually("they sleep", || crate::policy::is_asleep(waiting.pid()));
            assert_eq!(publishers[0].request("send 0 1"), "ok");
            waiting.read_line().parse().unwrap()
        };
        woken(100);
        let used = woken(1000);
        assert!(used < most, "{threads} threads that were woken once used {used} µs");
        let used: u64 = waiting.request("wait 1000").parse().unwrap();
        assert!(used < most, "{threads} threads that slept used {used} µs");
    }
}

/// Makes the kernel kill the process if this thread makes any system call other than exit.
#[allow(unsafe_code, reason = "prctl")]
fn forbid_system_calls() {
    let [load, equal, answer] = [0x20, 0x15, 0x06];
    let filter = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let exit = u32::try_from(libc::SYS_exit_group).unwrap();
    let mut program = [
        filter(load, 0, 0), // the number of the call
        filter(equal, 1, exit),
        filter(answer, 0, libc::SECCOMP_RET_ALLOW),
        filter(answer, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: it takes no pointer.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program is there, of the length it says, for as long as the call takes.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) }, 0);
}

/// Ends the process: the one system call that is still allowed.
#[allow(unsafe_code, reason = "_exit")]
fn exit(well: bool) -> ! {
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(i32::from(!well)) }
}

fn without_system_calls(words: &[&str]) {
    match *words {
        ["violate"] => {
            forbid_system_calls();
            let _ = std::fs::metadata("/");
            exit(true)
        }
        ["receives", name] => polling_subscriber(&topic(name, "")),
        ["sends", name] => {
            sending_publisher(&topic(name, &format!("depth=4,ignore_own,{ONE_SEGMENT}")));
        }
        _ => panic!("{words:?}"),
    }
}

/// Receives four messages normally, and the others without a system call.
fn polling_subscriber(topic: &Topic<Tensor>) {
    topic.subscribe().unwrap();
    serve(|_| {
        assert_eq!(take(topic, 4), [0, 1, 2, 3]);
        forbid_system_calls();
        let mut found = 0;
        for _ in 0..100_000 {
            found += u64::from(topic.recv().is_some_and(|tensor| tensor.number() == 4 + found));
        }
        exit(found == 8)
    });
}

fn sending_publisher(topic: &Topic<Tensor>) {
    assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
    serve(|_| {
        (0..100).for_each(|number| send(topic, number).unwrap());
        forbid_system_calls();
        let sent = (0..10_000).all(|number| send(topic, number).is_ok());
        exit(sent)
    });
}

/// The pool reserves no second segment: requesting and reserving one takes system calls.
const ONE_SEGMENT: &str = "growth=1048576";

fn no_system_call() {
    let mut violator = Command::new(std::env::current_exe().unwrap());
    let status = violator.env(ROLE, "without_system_calls violate").status().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGSYS), "a system call would be noticed: {status}");
    let name = unique();
    let mut publisher = publisher("tensor", &name, ONE_SEGMENT);
    let mut polling = Peer::start(&format!("without_system_calls receives {name}"));
    assert_eq!(publisher.request("subscribers 1"), "1");
    assert_eq!(publisher.request("send 0 12"), "ok");
    polling.write_line("go");
    assert!(polling.finish().success());
    // Sending to a subscriber that polls makes no system call either.
    let name = unique();
    let mut sending = Peer::start(&format!("without_system_calls sends {name}"));
    let _polling = subscriber("tensor", &name, "");
    sending.write_line("go");
    assert!(sending.finish().success());
}

fn is_readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// Receives all messages until the descriptor is not readable, and returns their numbers.
fn settle<T: Sample>(topic: &Topic<T>) -> Vec<u64> {
    let mut all = Vec::new();
    eventually("the descriptor is not readable", || {
        all.extend(drain(topic));
        !is_readable(topic.fd().unwrap(), Duration::ZERO)
    });
    all
}

fn readable_then_not() {
    for kind in ["u64", "tensor"] {
        let name = unique();
        let (numbers, tensors) = (topic::<u64>(&name, ""), topic::<Tensor>(&name, ""));
        let mut publisher = publisher(kind, &name, "");
        if kind == "u64" {
            watched(&numbers, &mut publisher);
        } else {
            watched(&tensors, &mut publisher);
        }
    }
}

fn watched<T: Sample>(topic: &Topic<T>, publisher: &mut Peer) {
    let fd = topic.fd().unwrap();
    assert_eq!(publisher.request("subscribers 1"), "1");
    wait_for_publishers(topic, 1);
    assert_eq!(settle(topic), []);
    for round in 0..50 {
        assert_eq!(publisher.request(&format!("send {} {}", 3 * round, 3 * round + 3)), "ok");
        let mut all = Vec::new();
        // While a segment is on its way the descriptor may be unreadable for a moment.
        while all.len() < 3 {
            assert!(is_readable(fd, LONG));
            all.extend(settle(topic));
        }
        assert_eq!(all, [3 * round, 3 * round + 1, 3 * round + 2], "and nothing else");
    }
    send(topic, 1).unwrap();
    assert!(is_readable(fd, LONG), "our own counts, too");
    assert_eq!(drain(topic), [1]);
    assert!(!is_readable(fd, Duration::ZERO));
}

fn several() {
    let name = unique();
    let topic = topic::<Tensor>(&name, "");
    let fd = topic.fd().unwrap();
    assert_eq!(settle(&topic), []);
    let mut publishers: Vec<Peer> = (0..4).map(|_| publisher("tensor", &name, "")).collect();
    publishers.iter_mut().for_each(|one| assert_eq!(one.request("subscribers 1"), "1"));
    wait_for_publishers(&topic, 4);
    assert_eq!(settle(&topic), []);
    while let Some(mut last) = publishers.pop() {
        for one in &mut publishers {
            assert_eq!(one.request("send 7 8"), "ok");
            assert!(is_readable(fd, LONG));
            assert_eq!(take(&topic, 1), [7]);
            assert_eq!(settle(&topic), []);
        }
        // The messages that it sent just before its death are still received.
        assert_eq!(last.request("send 8 10"), "ok");
        last.kill();
        assert!(is_readable(fd, LONG));
        assert_eq!(take(&topic, 2), [8, 9]);
        eventually("the death is noticed", || {
            assert_eq!(settle(&topic), []);
            topic.stats().publishers == publishers.len()
        });
    }
    assert_eq!(settle(&topic), []);
    // A publisher that starts later makes it readable, too.
    let mut late = publisher("tensor", &name, "");
    assert_eq!(late.request("send 1 2"), "ok");
    eventually("its message arrives", || is_readable(fd, LONG) && settle(&topic) == [1]);
}

/// One thread sleeps in `recv_timeout` while another watches the descriptor: one wake-up serves both.
fn beside() {
    let name = unique();
    let topic = topic::<Tensor>(&name, "");
    let fd = topic.fd().unwrap();
    let mut publisher = publisher("tensor", &name, "");
    assert_eq!(publisher.request("subscribers 1"), "1");
    wait_for_publishers(&topic, 1);
    assert_eq!(settle(&topic), []);
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let topic = &topic;
        let taken = scope.spawn(move || {
            sender.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            topic.recv_timeout(LONG).unwrap().unwrap().number()
        });
        let task = Path::new("/proc").join(receiver.recv().unwrap());
        eventually("it sleeps", || crate::policy::sleeps(&task));
        assert_eq!(publisher.request("send 1 2"), "ok");
        assert_eq!(taken.join().unwrap(), 1);
    });
    assert_eq!(publisher.request("send 2 3"), "ok");
    assert!(is_readable(fd, LONG));
    assert_eq!(take(&topic, 1), [2]);
}

/// Two sleeping processes exchange messages. One lost wake-up would stop them.
fn woken() {
    let [there, back] = [unique(), unique()];
    let mut echo = Peer::start(&format!("relay {there} {back}"));
    assert_eq!(echo.request("start"), "ok");
    let (out, echoed) = (topic::<Tensor>(&there, "ignore_own"), topic::<Tensor>(&back, ""));
    echoed.subscribe().unwrap();
    assert_eq!(out.wait_for_subscribers(1, LONG).unwrap(), 1);
    assert_eq!(echo.request("subscribers"), "1");
    echo.write_line("echo 2000");
    for number in 0..2000 {
        send(&out, number).unwrap();
        assert_eq!(echoed.wait().unwrap().number(), number);
    }
    assert_eq!(echo.read_line(), "ok");
}
