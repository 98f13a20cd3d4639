//! Threads under ptrace(2).
#![allow(unsafe_code, reason = "ptrace and waitpid")]

use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::time::{Duration, Instant};

use libc::{c_long, c_uint, c_void, pid_t};

/// What a victim raises right before its operation, and right after.
pub(crate) const MARKER: i32 = libc::SIGUSR1;

/// A thread of another process that this one traces. Should this process die, that one is killed.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tid: pid_t,
}

/// Why a thread does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Before its operation, or after.
    Marker,
    /// One instruction was executed, or the one at the breakpoint will be next.
    Trap,
    Interrupted,
    /// Any other signal: something is wrong with it.
    Signal(i32),
    /// It has ended, with this status of waitpid(2).
    Ended(i32),
}

fn ptrace(request: c_uint, tid: pid_t, addr: usize, data: usize) -> io::Result<c_long> {
    let (addr, data) = (addr as *mut c_void, data as *mut c_void);
    // SAFETY: no request of this file has the kernel write our memory.
    let result = unsafe { libc::ptrace(request, tid, addr, data) };
    if result == -1 && !is_peek(request) { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// These return what they found, which may well be -1.
fn is_peek(request: c_uint) -> bool {
    [libc::PTRACE_PEEKTEXT, libc::PTRACE_PEEKUSER].contains(&request)
}

/// The address of a register in the other process's `struct user`.
const PC: usize = offset_of!(libc::user, regs.rip);
const SYSCALL: usize = offset_of!(libc::user, regs.rax);
const DEBUG: usize = offset_of!(libc::user, u_debugreg);
const DEBUG_CONTROL: usize = DEBUG + 7 * size_of::<u64>();

/// In the control register: the first breakpoint is on, at an instruction.
const FIRST_ON: usize = 1;

/// The instruction `syscall`.
const SYSCALL_CODE: [u8; 2] = [0x0f, 0x05];

impl Thread {
    pub(crate) fn seize(tid: pid_t) -> io::Result<Thread> {
        let options = usize::try_from(libc::PTRACE_O_EXITKILL).unwrap();
        ptrace(libc::PTRACE_SEIZE, tid, 0, options)?;
        Ok(Thread { tid })
    }

    fn request(&self, request: c_uint, addr: usize, data: usize) -> c_long {
        ptrace(request, self.tid, addr, data).unwrap()
    }

    /// Lets it execute one instruction; `wait` for it.
    pub(crate) fn step(&self) {
        self.request(libc::PTRACE_SINGLESTEP, 0, 0);
    }

    /// Lets it run; without the signal that stopped it.
    pub(crate) fn resume(&self) {
        self.request(libc::PTRACE_CONT, 0, 0);
    }

    pub(crate) fn interrupt(&self) {
        self.request(libc::PTRACE_INTERRUPT, 0, 0);
    }

    /// Stops it before each execution of the instruction at `address`. This thread alone: the
    /// breakpoint is in its registers, not in the code.
    pub(crate) fn break_at(&self, address: usize) {
        self.request(libc::PTRACE_POKEUSER, DEBUG, address);
        self.request(libc::PTRACE_POKEUSER, DEBUG_CONTROL, FIRST_ON);
    }

    /// The address of the next instruction.
    pub(crate) fn pc(&self) -> usize {
        usize::try_from(self.request(libc::PTRACE_PEEKUSER, PC, 0)).unwrap()
    }

    /// The addresses of the kernel's code (vDSO) that reads the clock without a system call.
    pub(crate) fn clock(&self) -> Range<usize> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.tid)).unwrap();
        let range = maps.lines().find(|line| line.ends_with("[vdso]"));
        let ends = range.and_then(|line| line.split_once(' ')?.0.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        ends.map_or(0..0, |(start, end)| number(start)..number(end))
    }

    /// Whether the instruction at `address` is a system call.
    pub(crate) fn is_syscall(&self, address: usize) -> bool {
        let code = self.request(libc::PTRACE_PEEKTEXT, address, 0);
        code.to_ne_bytes().starts_with(&SYSCALL_CODE)
    }

    /// Whether it is about to wait for events.
    pub(crate) fn is_at_epoll_wait(&self) -> bool {
        let waits = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
        waits.contains(&self.request(libc::PTRACE_PEEKUSER, SYSCALL, 0))
            && self.is_syscall(self.pc())
    }

    /// Waits until it stops.
    pub(crate) fn wait(&self) -> Stop {
        self.wait_with(0).unwrap()
    }

    /// Waits until it stops, but not for ever.
    pub(crate) fn wait_for(&self, limit: Duration) -> Option<Stop> {
        let start = Instant::now();
        loop {
            match self.wait_with(libc::WNOHANG) {
                None if start.elapsed() < limit => std::thread::yield_now(),
                stop => return stop,
            }
        }
    }

    fn wait_with(&self, flags: i32) -> Option<Stop> {
        let mut status = 0;
        // SAFETY: `status` is a live variable.
        let found = unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL | flags) };
        assert!(found >= 0, "waitpid: {}", io::Error::last_os_error());
        (found != 0).then(|| stop(status))
    }
}

fn stop(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended(status);
    }
    match (status >> 16, libc::WSTOPSIG(status)) {
        (libc::PTRACE_EVENT_STOP, _) => Stop::Interrupted,
        (_, MARKER) => Stop::Marker,
        (_, libc::SIGTRAP) => Stop::Trap,
        (_, signal) => Stop::Signal(signal),
    }
}

/// Whether the first thread of a process sleeps.
pub(crate) fn sleeps(pid: pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// Kills a process, by its id.
pub(crate) fn kill(pid: pid_t) {
    // SAFETY: no memory is involved.
    let result = unsafe { libc::kill(pid, libc::SIGKILL) };
    assert_eq!(result, 0, "kill {pid}: {}", io::Error::last_os_error());
}

/// Has the kernel kill this process when its parent dies.
pub(crate) fn die_with_parent() {
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Stops this thread for its tracer.
pub(crate) fn mark() {
    // SAFETY: no memory is involved.
    unsafe { libc::raise(MARKER) };
}
