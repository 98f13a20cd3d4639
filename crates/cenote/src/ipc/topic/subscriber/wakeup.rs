//! What wakes the threads of this process that wait for a topic.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::ipc::service_thread::Served;
use crate::sync::{AtomicBool, AtomicU64, Ordering, fence};

/// An eventfd that is written to only while somebody listens. It never leaves this process.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    armed: AtomicU64,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { fd, armed: AtomicU64::new(0) })
    }

    /// From here on, until disarmed, ringing is heard. Follow this with a `SeqCst` fence, as that of
    /// [`row::arm`](crate::ipc::ring::subscriber_row::arm), and look again before sleeping.
    pub(crate) fn arm(&self, armed: bool) {
        self.armed.store(u64::from(armed), Ordering::Relaxed);
    }

    /// Rings if somebody listens. A `SeqCst` fence must stand between what is to be seen and this.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.armed.load(Ordering::Relaxed) != 0 {
            self.ring_anyway();
        }
    }

    /// Rings for something that does not wait to be looked at.
    pub(crate) fn ring_anyway(&self) {
        // A counter at its limit has been rung.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Makes it quiet again.
    pub(crate) fn hush(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}

/// Something that is not a message: a publisher came or went.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) bell: Bell,
    any: AtomicBool,
}

impl News {
    pub(crate) fn new() -> io::Result<News> {
        Ok(News { bell: Bell::new()?, any: AtomicBool::new(false) })
    }

    /// Has whoever receives look, and wakes it if it sleeps.
    pub(crate) fn tell(&self) {
        self.set();
        // Whoever arms the bell looks once more after a fence of its own.
        fence(Ordering::SeqCst);
        self.bell.ring();
    }

    /// Has whoever receives look, the next time it does.
    pub(crate) fn set(&self) {
        // A swap, as in `clear`, because loom does not order a plain store after the swap that it follows.
        self.any.swap(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// What there is is about to be looked at. It reads what it overwrites: a plain store could take the
    /// place of one whose reason is not seen yet, and nobody would look for that.
    pub(crate) fn clear(&self) {
        self.any.swap(false, Ordering::AcqRel);
    }
}

/// Called when it is time to look again.
impl Served for News {
    fn ready(self: Arc<Self>, _token: u64) {
        self.bell.ring_anyway();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The service thread has news for a thread that receives.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::{model, thread};

    use super::*;

    /// The word that the news is about.
    struct Shared {
        news: News,
        publishers: AtomicU64,
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            Arc::new(Shared { news: News::new().unwrap(), publishers: AtomicU64::new(0) })
        }

        /// Whether a byte waits in the bell.
        fn was_rung(&self) -> bool {
            rustix::io::read(&self.news.bell.fd, &mut [0; 8]).is_ok()
        }
    }

    /// The receiver finds earlier news and clears them while the service thread sets new ones.
    fn clear_against_set(clear: fn(&News)) {
        model(move || {
            let shared = Shared::new();
            shared.news.set();
            let service = shared.clone();
            let service = thread::spawn(move || {
                service.publishers.store(1, Ordering::Relaxed);
                service.news.set();
            });
            clear(&shared.news);
            let seen = shared.publishers.load(Ordering::Relaxed);
            service.join().unwrap();
            assert!(shared.news.any() || seen == 1, "the news are lost");
        });
    }

    /// The receiver arms the bell, looks once more and sleeps while the service thread tells.
    fn arm_against_tell(tell: fn(&News)) {
        model(move || {
            let shared = Shared::new();
            let service = shared.clone();
            let service = thread::spawn(move || tell(&service.news));
            shared.news.bell.arm(true);
            fence(Ordering::SeqCst);
            let seen = shared.news.any();
            service.join().unwrap();
            assert!(seen || shared.was_rung(), "the receiver sleeps for ever");
        });
    }

    #[test]
    fn loom_news_that_come_while_others_are_cleared_are_seen_now_or_later() {
        clear_against_set(News::clear);
    }

    #[test]
    #[should_panic(expected = "the news are lost")]
    fn loom_needs_to_read_what_it_clears() {
        clear_against_set(|news| news.any.store(false, Ordering::Release));
    }

    #[test]
    fn loom_a_receiver_that_sleeps_was_woken_or_has_seen_the_news() {
        arm_against_tell(News::tell);
    }

    #[test]
    #[should_panic(expected = "the receiver sleeps for ever")]
    fn loom_needs_the_fence_before_the_bell() {
        arm_against_tell(|news| {
            news.set();
            news.bell.ring();
        });
    }
}
