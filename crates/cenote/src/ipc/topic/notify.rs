//! Notifies the threads of this process that wait for a topic.
//!
//! Other processes wake a subscriber by a byte on a connection. Events of this process end its sleep through an
//! eventfd: a message of the same [`Topic`](crate::Topic) object, a publisher that connected or disconnected, a pool that
//! was attached.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::ipc::service_thread::Served;
use crate::sync::{AtomicBool, AtomicU64, Ordering, fence};

/// An eventfd that is written only while a thread sleeps on it. No other process has it.
#[derive(Debug)]
pub(crate) struct NotifyFd {
    fd: OwnedFd,
    armed: AtomicU64,
}

impl NotifyFd {
    pub(crate) fn new() -> io::Result<NotifyFd> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(NotifyFd { fd, armed: AtomicU64::new(0) })
    }

    /// Says whether a thread sleeps, or is about to. Before it sleeps, the caller issues a `SeqCst` fence, such as the one in
    /// [`subscriber_row::arm`](crate::ipc::ring::subscriber_row::arm), and looks once more.
    pub(crate) fn arm(&self, armed: bool) {
        self.armed.store(u64::from(armed), Ordering::Relaxed);
    }

    /// Makes the descriptor readable if it is armed. The caller issues a `SeqCst` fence between the change and
    /// this.
    #[inline]
    pub(crate) fn notify_if_armed(&self) {
        if self.armed.load(Ordering::Relaxed) != 0 {
            self.notify();
        }
    }

    /// Makes the descriptor readable.
    pub(crate) fn notify(&self) {
        // It fails if the counter is at its limit: then the descriptor is readable already.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor not readable.
    pub(crate) fn drain(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}

impl AsFd for NotifyFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Notifies a subscriber of messages of the same object, and of changes that are not messages: a publisher connected or
/// disconnected.
#[derive(Debug)]
pub(crate) struct SubscriberNotify {
    pub(crate) fd: NotifyFd,
    changed: AtomicBool,
}

impl SubscriberNotify {
    pub(crate) fn new() -> io::Result<SubscriberNotify> {
        Ok(SubscriberNotify { fd: NotifyFd::new()?, changed: AtomicBool::new(false) })
    }

    /// Sets the flag, and notifies a thread that sleeps.
    pub(crate) fn notify_change(&self) {
        self.set_changed();
        // Pairs with the fence of the thread that arms the descriptor and looks once more.
        fence(Ordering::SeqCst);
        self.fd.notify_if_armed();
    }

    /// Sets the flag: the next call that receives looks for the change.
    pub(crate) fn set_changed(&self) {
        // A swap, as in `clear_changed`, because loom does not order a plain store after the swap that it follows.
        self.changed.swap(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Clears the flag before the caller inspects the state. Uses `swap`: a plain store could overwrite a concurrent
    /// `set_changed` whose data was not read yet, and the change would be lost.
    pub(crate) fn clear_changed(&self) {
        self.changed.swap(false, Ordering::AcqRel);
    }
}

/// The service thread calls this when a delayed notification is due.
impl Served for SubscriberNotify {
    fn ready(self: Arc<Self>, _token: u64) {
        self.fd.notify();
    }
}

/// The service thread notifies a thread that receives.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::{model, thread};

    use super::*;

    struct Shared {
        notify: SubscriberNotify,
        /// The state that changes.
        publishers: AtomicU64,
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            Arc::new(Shared {
                notify: SubscriberNotify::new().unwrap(),
                publishers: AtomicU64::new(0),
            })
        }

        /// Whether the descriptor is readable.
        fn was_notified(&self) -> bool {
            rustix::io::read(&self.notify.fd.fd, &mut [0; 8]).is_ok()
        }
    }

    /// The receiver clears an earlier change while the service thread makes another.
    fn clear_against_set(clear: fn(&SubscriberNotify)) {
        model(move || {
            let shared = Shared::new();
            shared.notify.set_changed();
            let service = shared.clone();
            let service = thread::spawn(move || {
                service.publishers.store(1, Ordering::Relaxed);
                service.notify.set_changed();
            });
            clear(&shared.notify);
            let seen = shared.publishers.load(Ordering::Relaxed);
            service.join().unwrap();
            assert!(shared.notify.is_changed() || seen == 1, "the change is lost");
        });
    }

    /// The receiver arms the descriptor, looks once more and sleeps while the service thread notifies it.
    fn arm_against_notify(notify: fn(&SubscriberNotify)) {
        model(move || {
            let shared = Shared::new();
            let service = shared.clone();
            let service = thread::spawn(move || notify(&service.notify));
            shared.notify.fd.arm(true);
            fence(Ordering::SeqCst);
            let seen = shared.notify.is_changed();
            service.join().unwrap();
            assert!(seen || shared.was_notified(), "the receiver sleeps for ever");
        });
    }

    #[test]
    fn loom_a_change_during_a_clear_is_seen_now_or_later() {
        clear_against_set(SubscriberNotify::clear_changed);
    }

    #[test]
    #[should_panic(expected = "the change is lost")]
    fn loom_needs_to_read_what_it_clears() {
        clear_against_set(|notify| notify.changed.store(false, Ordering::Release));
    }

    #[test]
    fn loom_a_receiver_that_sleeps_was_notified_or_has_seen_the_change() {
        arm_against_notify(SubscriberNotify::notify_change);
    }

    #[test]
    #[should_panic(expected = "the receiver sleeps for ever")]
    fn loom_needs_the_fence_before_the_notification() {
        arm_against_notify(|notify| {
            notify.set_changed();
            notify.fd.notify_if_armed();
        });
    }
}
