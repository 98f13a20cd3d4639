//! Threads that nobody but this crate knows of.
#![allow(unsafe_code, reason = "pthread_sigmask")]

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// Faults are for the thread that makes them. Blocked, they would pass the program's handler by.
const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread that is sent no signals of the process.
///
/// A program that blocks a signal, to wait for it or to read it from a signalfd, can do so in its
/// own threads only: had one of ours the signal unblocked, it would be delivered there, and its
/// default action could end the process.
pub(crate) fn spawn(
    thread: Builder,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    // The new thread inherits the mask, so that there is no moment without it.
    let before = mask(libc::SIG_BLOCK, &all_but_faults());
    let spawned = thread.spawn(run);
    mask(libc::SIG_SETMASK, &before);
    spawned
}

fn all_but_faults() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointer is good for a set, and sigfillset(3) initialises it.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    for fault in FAULTS {
        // SAFETY: the set was initialised above; a number that is no signal would be refused.
        unsafe { libc::sigdelset(set.as_mut_ptr(), fault) };
    }
    // SAFETY: as above.
    unsafe { set.assume_init() }
}

/// Changes the signals that this thread blocks; returns those that it blocked before.
fn mask(how: i32, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = all_but_faults();
    // SAFETY: both are initialised sets, and `how` is one of the three values there are, so that the
    // call cannot fail.
    unsafe { libc::pthread_sigmask(how, set, &raw mut before) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        let now = mask(libc::SIG_BLOCK, &none());
        // SAFETY: an initialised set.
        unsafe { libc::sigismember(&raw const now, signal) == 1 }
    }

    fn none() -> libc::sigset_t {
        let mut set = all_but_faults();
        // SAFETY: the pointer is good for a set.
        unsafe { libc::sigemptyset(&raw mut set) };
        set
    }

    #[test]
    fn a_thread_of_ours_is_sent_no_signals_but_faults_and_the_caller_keeps_its_own() {
        let before = is_blocked(libc::SIGTERM);
        let thread = spawn(Builder::new(), || {
            assert!(is_blocked(libc::SIGTERM) && is_blocked(libc::SIGINT));
            assert!(!is_blocked(libc::SIGSEGV) && !is_blocked(libc::SIGBUS));
        });
        thread.unwrap().join().unwrap();
        assert_eq!(is_blocked(libc::SIGTERM), before);
    }
}
