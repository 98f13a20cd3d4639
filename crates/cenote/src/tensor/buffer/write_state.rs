//! Who may write a buffer: its holder, those it was lent to, or nobody any more.

use crate::sync::{AtomicU32, Ordering};

/// Set once, when another process may have the bytes.
const PUBLISHED: u32 = 1 << 31;

/// Whether a buffer was published, and how many loans of it are alive: one word, so that it is
/// never both.
#[derive(Debug, Default)]
pub(crate) struct Sharing(AtomicU32);

/// A buffer that is being written, or may be.
#[cfg(any(test, target_os = "linux"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lent;

impl Sharing {
    /// From here on nobody writes the bytes. Not while somebody has borrowed them to write.
    #[cfg(any(test, target_os = "linux"))]
    #[inline]
    pub(crate) fn publish(&self) -> Result<(), Lent> {
        // Acquire, here and below: whoever wrote through a loan gave it back with a release, to the first
        // who published, and what that one saw is passed on.
        match self.0.load(Ordering::Acquire) {
            PUBLISHED => Ok(()),
            0 => self.first_publish(),
            _ => Err(Lent),
        }
    }

    #[cfg(any(test, target_os = "linux"))]
    #[inline]
    fn first_publish(&self) -> Result<(), Lent> {
        let done = self.0.compare_exchange(0, PUBLISHED, Ordering::AcqRel, Ordering::Acquire);
        match done {
            Ok(_) | Err(PUBLISHED) => Ok(()),
            Err(_) => Err(Lent),
        }
    }

    #[inline]
    pub(crate) fn is_published(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PUBLISHED
    }

    #[inline]
    pub(crate) fn is_lent(&self) -> bool {
        !matches!(self.0.load(Ordering::Relaxed), 0 | PUBLISHED)
    }

    /// One more may write. `false` if it was published.
    pub(crate) fn lend(&self) -> bool {
        let more = |loans: u32| (loans < PUBLISHED - 1).then_some(loans + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// One less may write.
    pub(crate) fn give_back(&self) {
        // Release: what was written is there for whoever publishes next.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// For a buffer that nobody has: as if it were new.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn renew(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_not_published_and_what_was_published_is_not_lent() {
        let sharing = Sharing::default();
        assert!(sharing.lend() && sharing.lend());
        assert_eq!(sharing.publish(), Err(Lent));
        sharing.give_back();
        assert!(sharing.is_lent() && !sharing.is_published());
        sharing.give_back();
        assert_eq!(sharing.publish(), Ok(()));
        assert_eq!(sharing.publish(), Ok(()));
        assert!(!sharing.lend() && !sharing.is_lent() && sharing.is_published());
    }
}

/// A thread writes through a loan while others publish. loom reports a "Causality violation" if a publisher can read the
/// bytes without having seen the last write.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::cell::Cell;
    use loom::sync::Arc;
    use loom::{model, thread};

    use super::*;

    /// The operations of [`Sharing`], of which a negative model replaces one.
    #[derive(Clone, Copy)]
    struct Operations {
        lend: fn(&Sharing) -> bool,
        give_back: fn(&Sharing),
        publish: fn(&Sharing) -> Result<(), Lent>,
    }

    const SHIPPED: Operations = Operations {
        lend: Sharing::lend,
        give_back: Sharing::give_back,
        publish: Sharing::publish,
    };

    struct Buffer {
        sharing: Sharing,
        byte: Cell<u8>,
    }

    impl Buffer {
        fn new() -> Arc<Buffer> {
            Arc::new(Buffer { sharing: Sharing::default(), byte: Cell::new(0) })
        }

        fn write(&self) {
            self.byte.set(1);
        }

        fn publish_and_read(&self, operations: Operations) -> Option<u8> {
            (operations.publish)(&self.sharing).ok()?;
            Some(self.byte.get())
        }
    }

    /// One thread lends, writes and gives back; the other publishes.
    fn lend_against_publish(operations: Operations) {
        model(move || {
            let buffer = Buffer::new();
            let writer = buffer.clone();
            let writer = thread::spawn(move || {
                let lent = (operations.lend)(&writer.sharing);
                if lent {
                    writer.write();
                    (operations.give_back)(&writer.sharing);
                }
                lent
            });
            let read = buffer.publish_and_read(operations);
            let lent = writer.join().unwrap();
            assert!(lent || read == Some(0), "a loan is refused only once it is published");
        });
    }

    #[test]
    fn loom_what_is_published_is_not_written_any_more() {
        lend_against_publish(SHIPPED);
    }

    #[test]
    fn loom_every_publisher_sees_what_was_written_through_a_loan() {
        model(|| {
            let buffer = Buffer::new();
            assert!(buffer.sharing.lend());
            let [writer, other] = [(); 2].map(|()| buffer.clone());
            let writer = thread::spawn(move || {
                writer.write();
                writer.sharing.give_back();
            });
            let other = thread::spawn(move || other.publish_and_read(SHIPPED));
            let read = [buffer.publish_and_read(SHIPPED), other.join().unwrap()];
            writer.join().unwrap();
            assert!(read.into_iter().flatten().all(|byte| byte == 1));
        });
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_needs_the_release_of_a_loan() {
        let give_back = |sharing: &Sharing| _ = sharing.0.fetch_sub(1, Ordering::Relaxed);
        lend_against_publish(Operations { give_back, ..SHIPPED });
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_needs_the_acquire_of_a_publisher() {
        let publish = |sharing: &Sharing| {
            let published =
                sharing.0.compare_exchange(0, PUBLISHED, Ordering::Release, Ordering::Relaxed);
            published.map(drop).map_err(|_| Lent)
        };
        lend_against_publish(Operations { publish, ..SHIPPED });
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_needs_one_step_to_look_and_lend() {
        let lend = |sharing: &Sharing| {
            let loans = sharing.0.load(Ordering::Relaxed);
            sharing.0.store(loans + 1, Ordering::Relaxed);
            loans < PUBLISHED
        };
        lend_against_publish(Operations { lend, ..SHIPPED });
    }
}
