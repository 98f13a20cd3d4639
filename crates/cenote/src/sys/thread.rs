//! Threads that this crate starts for itself.
#![allow(unsafe_code, reason = "pthread_create, pthread_sigmask")]

use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
#[cfg(any(feature = "gl", test))]
use std::thread::{Builder, JoinHandle};

/// Signals of faults, which the kernel sends to the thread that caused them. If they are blocked, the program's handler
/// does not run.
const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread that gets no signals sent to the process.
///
/// A program that waits for a signal, or reads it from a signalfd, blocks it in its own threads. If a thread of this
/// crate did not block it, the kernel would deliver it there, and its default action could end the process.
#[cfg(any(feature = "gl", test))]
pub(crate) fn spawn(
    thread: Builder,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    // The new thread inherits the mask, so it never runs without it.
    let before = mask(libc::SIG_BLOCK, &all_but_faults());
    let spawned = thread.spawn(run);
    mask(libc::SIG_SETMASK, &before);
    spawned
}

/// The name of a thread, and what it runs.
type Start = (&'static CStr, Box<dyn FnOnce() + Send>);

/// The same, and works in a forked child as well. The standard library takes a lock whenever one of its threads starts or
/// ends; in a child that was forked while the lock was held, no such thread would ever run. So this calls
/// pthread_create(3) itself. The thread cannot be joined.
pub(crate) fn start(
    name: &'static CStr,
    stack: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let start: *mut Start = Box::into_raw(Box::new((name, Box::new(run))));
    let before = mask(libc::SIG_BLOCK, &all_but_faults());
    // Thread-local variables of the program lie on the stack, too, and may need more than `stack` bytes.
    let started = create(Some(stack), start).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => create(None, start),
        _ => Err(error),
    });
    mask(libc::SIG_SETMASK, &before);
    if started.is_err() {
        // SAFETY: it comes from `Box::into_raw` above, and no thread took it.
        drop(unsafe { Box::from_raw(start) });
    }
    started
}

/// Starts a thread that takes ownership of `start`. If it fails, the caller still owns it.
fn create(stack: Option<usize>, start: *mut Start) -> io::Result<()> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the pointer is to live memory for attributes, which this call initialises.
    check(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
    if let Some(stack) = stack {
        // SAFETY: initialised above; the call refuses a size that is not possible.
        unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack) };
    }
    // SAFETY: as above.
    unsafe {
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED)
    };
    let mut id = 0;
    // SAFETY: the attributes are initialised, and `enter` takes ownership of the box.
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
    // SAFETY: `start` made it of a box, for this thread alone. It takes the box back only if no thread was created.
    let (name, run) = *unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: it has no argument and cannot fail.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: the thread is this one, and the string is static.
    unsafe { libc::pthread_setname_np(this, name.as_ptr()) };
    // The panic hook has reported a panic. It must not end the process.
    let _ = catch_unwind(AssertUnwindSafe(run));
    ptr::null_mut()
}

fn all_but_faults() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointer is to live memory for a set, which sigfillset(3) initialises.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    for fault in FAULTS {
        // SAFETY: the set was initialised above; the call refuses a number that is not a signal.
        unsafe { libc::sigdelset(set.as_mut_ptr(), fault) };
    }
    // SAFETY: as above.
    unsafe { set.assume_init() }
}

/// Changes the signals that this thread blocks. Returns the set that it blocked before.
fn mask(how: i32, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = all_but_faults();
    // SAFETY: both are initialised sets, and `how` is one of the three values that the call knows, so it cannot fail.
    unsafe { libc::pthread_sigmask(how, set, &raw mut before) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        let now = mask(libc::SIG_BLOCK, &none());
        // SAFETY: `now` is initialised.
        unsafe { libc::sigismember(&raw const now, signal) == 1 }
    }

    fn none() -> libc::sigset_t {
        let mut set = all_but_faults();
        // SAFETY: the pointer is to a live set.
        unsafe { libc::sigemptyset(&raw mut set) };
        set
    }

    /// Whether this thread blocks all signals but faults.
    fn blocks_all_but_faults() -> bool {
        let blocked = [libc::SIGTERM, libc::SIGINT].into_iter().all(is_blocked);
        blocked && ![libc::SIGSEGV, libc::SIGBUS].into_iter().any(is_blocked)
    }

    #[test]
    fn a_started_thread_blocks_all_signals_but_faults_and_the_callers_mask_stays() {
        let before = is_blocked(libc::SIGTERM);
        spawn(Builder::new(), || assert!(blocks_all_but_faults())).unwrap().join().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        start(c"cenote-test", 256 << 10, move || sender.send(blocks_all_but_faults()).unwrap())
            .unwrap();
        assert!(receiver.recv().unwrap());
        assert_eq!(is_blocked(libc::SIGTERM), before);
    }

    #[test]
    fn a_thread_that_panics_ends_alone_and_one_that_cannot_start_is_an_error() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        start(c"cenote-test", 256 << 10, move || {
            let _kept = sender;
            std::panic::resume_unwind(Box::new(()));
        })
        .unwrap();
        assert!(receiver.recv().is_err(), "its values are dropped");
        assert!(start(c"cenote-test", 1 << 60, || {}).is_err());
    }
}
