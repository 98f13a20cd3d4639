//! Identical processes: all are forked from one process that never does anything else.
//!
//! A fork has its parent's addresses, heap and hash seeds, so every victim of an operation takes the
//! same path, and starting one costs no exec. One child at a time, which has the pipes to itself.
#![allow(unsafe_code, reason = "fork")]

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use libc::pid_t;

use super::tracer::{Stop, Thread, die_with_parent, kill};
use super::{FORK_SERVER, pool_operations};
use crate::support::peer::command;

/// The line of the fork server when a child has ended.
const DONE: &str = "done";

/// The process that forks, as the scenario has it.
pub(crate) struct ForkServer {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl ForkServer {
    pub(crate) fn new() -> ForkServer {
        let mut child =
            command(FORK_SERVER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().unwrap());
        ForkServer { child, to, from }
    }

    /// Forks a child that waits for `go`, and gives its pid.
    pub(crate) fn fork(&mut self, task: &str) -> pid_t {
        self.write_line(task);
        self.read_line().parse().unwrap()
    }

    /// Forks a child that answers questions.
    pub(crate) fn fork_reader(&mut self) -> pid_t {
        let pid = self.fork("reader");
        self.write_line("go");
        pid
    }

    pub(crate) fn write_line(&mut self, line: &str) {
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn request(&mut self, question: &str) -> String {
        self.write_line(question);
        self.read_line()
    }

    /// What the child had still said, once it is gone.
    pub(crate) fn last_words(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.read_line() {
                line if line == DONE => return lines,
                line if line.is_empty() => panic!("the fork server ended"),
                line => lines.push(line),
            }
        }
    }

    /// Kills the child that is there, and waits for it.
    pub(crate) fn kill(&mut self, pid: pid_t) {
        kill(pid);
        self.last_words();
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        drop(self.to.take()); // at the end of its input it ends, and so does a reader
        let _ = self.child.wait();
    }
}

/// A child under ptrace.
pub(crate) struct Victim<'a> {
    fork_server: &'a mut ForkServer,
    pid: pid_t,
    pub(crate) main: Thread,
    pub(crate) service: Option<Thread>,
}

impl<'a> Victim<'a> {
    /// Starts one and lets it run to right before its operation.
    pub(crate) fn start(fork_server: &'a mut ForkServer, task: &str) -> Victim<'a> {
        let pid = fork_server.fork(task);
        let main = Thread::seize(pid).unwrap();
        fork_server.write_line("go");
        assert_eq!(main.wait(), Stop::Marker, "the victim of {task:?} did not get ready");
        Victim { fork_server, pid, main, service: None }
    }

    pub(crate) fn read_line(&mut self) -> String {
        self.fork_server.read_line()
    }

    /// Stops its service thread.
    pub(crate) fn stop_service(&mut self) -> &Thread {
        let tid = service_thread(self.pid);
        let thread = self.service.insert(Thread::seize(tid).unwrap());
        thread.interrupt();
        assert_eq!(thread.wait(), Stop::Interrupted);
        thread
    }

    /// Kills it, waits until nothing of it is left, and gives what it had said.
    pub(crate) fn kill(self) -> Vec<String> {
        kill(self.pid);
        for thread in self.service.iter().chain([&self.main]) {
            while !matches!(thread.wait(), Stop::Ended(_)) {}
        }
        self.fork_server.last_words()
    }
}

/// Waits for it: it gives itself its name when it first runs, and sleeps when it has done what the
/// making of the pool left to it, which is no part of the operation.
fn service_thread(pid: pid_t) -> pid_t {
    loop {
        match find_thread(pid, "cenote\n") {
            Some(tid) if is_asleep(pid, tid) => return tid,
            _ => std::thread::yield_now(),
        }
    }
}

fn is_asleep(pid: pid_t, tid: pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
}

fn find_thread(pid: pid_t, name: &str) -> Option<pid_t> {
    let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let found = tasks.find(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm == name)
    });
    found.map(|task| task.file_name().to_str().unwrap().parse().unwrap())
}

/// The process that forks, itself.
pub(crate) fn run() {
    die_with_parent();
    // Makes this thread's hash seeds, which every child inherits.
    std::hint::black_box(HashSet::from([1]));
    // Once, for all children: with several threads it takes many milliseconds.
    let command = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
    // SAFETY: it takes three numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    while let Some(task) = pool_operations::read_line() {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                die_with_parent();
                pool_operations::run(&task);
                return;
            }
            pid => reap(pid),
        }
        pool_operations::write_line(DONE);
    }
}

fn reap(pid: pid_t) {
    let mut status = 0;
    // SAFETY: `status` is a live variable.
    let reaped = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(reaped, pid, "fork or waitpid: {}", std::io::Error::last_os_error());
}
