//! Threads that nobody but this crate knows of.
#![allow(unsafe_code, reason = "pthread_create, pthread_sigmask")]

use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
#[cfg(any(feature = "gl", test))]
use std::thread::{Builder, JoinHandle};

/// Faults are for the thread that makes them. Blocked, they would pass the program's handler by.
const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread that is sent no signals of the process.
///
/// A program that blocks a signal, to wait for it or to read it from a signalfd, can do so in its
/// own threads only: had one of ours the signal unblocked, it would be delivered there, and its
/// default action could end the process.
#[cfg(any(feature = "gl", test))]
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

/// What a thread is called, and what it does.
type Start = (&'static CStr, Box<dyn FnOnce() + Send>);

/// The same, in a forked child as well: the standard library takes a lock whenever a thread of its own starts
/// or ends, and in a child that was forked meanwhile none would ever begin to run. So this one is not of its
/// own, and nobody waits for its end.
pub(crate) fn start(
    name: &'static CStr,
    stack: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let start: *mut Start = Box::into_raw(Box::new((name, Box::new(run))));
    let before = mask(libc::SIG_BLOCK, &all_but_faults());
    // What the program keeps for each thread lies on the stack, too, and may be more than that.
    let started = create(Some(stack), start).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => create(None, start),
        _ => Err(error),
    });
    mask(libc::SIG_SETMASK, &before);
    if started.is_err() {
        // SAFETY: made above, and no thread took it over.
        drop(unsafe { Box::from_raw(start) });
    }
    started
}

/// Starts a thread that takes `start` over; if it fails, nobody has.
fn create(stack: Option<usize>, start: *mut Start) -> io::Result<()> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the pointer is good for attributes, which this initialises.
    check(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
    if let Some(stack) = stack {
        // SAFETY: initialised above; what cannot be is refused.
        unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack) };
    }
    // SAFETY: as above.
    unsafe {
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED)
    };
    let mut id = 0;
    // SAFETY: the attributes are as above, and `enter` takes the box over.
    let created = check(unsafe {
        libc::pthread_create(&raw mut id, attributes.as_ptr(), enter, start.cast())
    });
    // SAFETY: initialised above, and not used after this.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    created
}

fn check(error: i32) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

extern "C" fn enter(start: *mut c_void) -> *mut c_void {
    // SAFETY: what `start` made of a box, for this thread alone: a thread that runs was created, and only
    // where none was does `start` take it back.
    let (name, run) = *unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: it takes nothing.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: a thread that runs, and a string that lives for ever.
    unsafe { libc::pthread_setname_np(this, name.as_ptr()) };
    // A panic was told of, and ends nobody else.
    let _ = catch_unwind(AssertUnwindSafe(run));
    ptr::null_mut()
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

    /// Whether it is sent no signals but faults.
    fn is_undisturbed() -> bool {
        let blocked = [libc::SIGTERM, libc::SIGINT].into_iter().all(is_blocked);
        blocked && ![libc::SIGSEGV, libc::SIGBUS].into_iter().any(is_blocked)
    }

    #[test]
    fn a_thread_of_ours_is_sent_no_signals_but_faults_and_the_caller_keeps_its_own() {
        let before = is_blocked(libc::SIGTERM);
        spawn(Builder::new(), || assert!(is_undisturbed())).unwrap().join().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        start(c"cenote-test", 256 << 10, move || tell.send(is_undisturbed()).unwrap()).unwrap();
        assert!(told.recv().unwrap());
        assert_eq!(is_blocked(libc::SIGTERM), before);
    }

    #[test]
    fn a_thread_that_panics_ends_alone_and_one_that_cannot_be_is_an_error() {
        let (tell, told) = std::sync::mpsc::channel::<()>();
        start(c"cenote-test", 256 << 10, move || {
            let _kept = tell;
            std::panic::resume_unwind(Box::new(()));
        })
        .unwrap();
        assert!(told.recv().is_err(), "what it had is dropped");
        assert!(start(c"cenote-test", 1 << 60, || {}).is_err());
    }
}
