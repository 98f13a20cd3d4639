//! Whether a buffer may still be written: it is private, on loan to code that writes by pointer, or published.

use crate::sync::{AtomicU32, Ordering};

/// The value once another process may have the bytes.
const PUBLISHED: u32 = 1 << 31;

/// Whether a buffer is published, and how many loans to write it are alive. Both are in one word, so that it is
/// never both published and on loan.
#[derive(Debug, Default)]
pub(crate) struct WriteState(AtomicU32);

/// The error for a buffer that cannot be published, because a loan to write it is alive.
#[cfg(any(test, target_os = "linux"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OnLoan;

impl WriteState {
    /// Marks the buffer as published: from then on it is not written. Fails while a loan is alive.
    #[cfg(any(test, target_os = "linux"))]
    #[inline]
    pub(crate) fn publish(&self) -> Result<(), OnLoan> {
        // Acquire, here and below: it pairs with the Release of `end_loan` for the first publisher, and with the
        // Release of that publisher for later ones. So every publisher sees what was written through a loan.
        match self.0.load(Ordering::Acquire) {
            PUBLISHED => Ok(()),
            0 => self.first_publish(),
            _ => Err(OnLoan),
        }
    }

    #[cfg(any(test, target_os = "linux"))]
    #[inline]
    fn first_publish(&self) -> Result<(), OnLoan> {
        let done = self.0.compare_exchange(0, PUBLISHED, Ordering::AcqRel, Ordering::Acquire);
        match done {
            Ok(_) | Err(PUBLISHED) => Ok(()),
            Err(_) => Err(OnLoan),
        }
    }

    #[inline]
    pub(crate) fn is_published(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PUBLISHED
    }

    #[inline]
    pub(crate) fn has_loans(&self) -> bool {
        !matches!(self.0.load(Ordering::Relaxed), 0 | PUBLISHED)
    }

    /// Counts a loan to write. Returns false if the buffer is published.
    pub(crate) fn begin_loan(&self) -> bool {
        let more = |loans: u32| (loans < PUBLISHED - 1).then_some(loans + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Ends a loan.
    pub(crate) fn end_loan(&self) {
        // Release: the next publisher sees what was written through the loan.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Makes a recycled buffer private again. Only the pool has the buffer.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_never_both_on_loan_and_published() {
        let state = WriteState::default();
        assert!(state.begin_loan() && state.begin_loan());
        assert_eq!(state.publish(), Err(OnLoan));
        state.end_loan();
        assert!(state.has_loans() && !state.is_published());
        state.end_loan();
        assert_eq!(state.publish(), Ok(()));
        assert_eq!(state.publish(), Ok(()));
        assert!(!state.begin_loan() && !state.has_loans() && state.is_published());
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

    /// The operations of [`WriteState`], of which a negative model replaces one.
    #[derive(Clone, Copy)]
    struct Operations {
        begin_loan: fn(&WriteState) -> bool,
        end_loan: fn(&WriteState),
        publish: fn(&WriteState) -> Result<(), OnLoan>,
    }

    const SHIPPED: Operations = Operations {
        begin_loan: WriteState::begin_loan,
        end_loan: WriteState::end_loan,
        publish: WriteState::publish,
    };

    struct Buffer {
        state: WriteState,
        byte: Cell<u8>,
    }

    impl Buffer {
        fn new() -> Arc<Buffer> {
            Arc::new(Buffer { state: WriteState::default(), byte: Cell::new(0) })
        }

        fn write(&self) {
            self.byte.set(1);
        }

        fn publish_and_read(&self, operations: Operations) -> Option<u8> {
            (operations.publish)(&self.state).ok()?;
            Some(self.byte.get())
        }
    }

    /// One thread begins a loan, writes and ends the loan; the other publishes.
    fn loan_against_publish(operations: Operations) {
        model(move || {
            let buffer = Buffer::new();
            let writer = buffer.clone();
            let writer = thread::spawn(move || {
                let is_loaned = (operations.begin_loan)(&writer.state);
                if is_loaned {
                    writer.write();
                    (operations.end_loan)(&writer.state);
                }
                is_loaned
            });
            let read = buffer.publish_and_read(operations);
            let is_loaned = writer.join().unwrap();
            assert!(is_loaned || read == Some(0), "a loan is refused only once it is published");
        });
    }

    #[test]
    fn loom_published_bytes_are_not_written() {
        loan_against_publish(SHIPPED);
    }

    #[test]
    fn loom_every_publisher_sees_what_was_written_through_a_loan() {
        model(|| {
            let buffer = Buffer::new();
            assert!(buffer.state.begin_loan());
            let [writer, other] = [(); 2].map(|()| buffer.clone());
            let writer = thread::spawn(move || {
                writer.write();
                writer.state.end_loan();
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
        let end_loan = |state: &WriteState| _ = state.0.fetch_sub(1, Ordering::Relaxed);
        loan_against_publish(Operations { end_loan, ..SHIPPED });
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_needs_the_acquire_of_a_publisher() {
        let publish = |state: &WriteState| {
            let published =
                state.0.compare_exchange(0, PUBLISHED, Ordering::Release, Ordering::Relaxed);
            published.map(drop).map_err(|_| OnLoan)
        };
        loan_against_publish(Operations { publish, ..SHIPPED });
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_needs_one_step_to_check_and_count_a_loan() {
        let begin_loan = |state: &WriteState| {
            let loans = state.0.load(Ordering::Relaxed);
            state.0.store(loans + 1, Ordering::Relaxed);
            loans < PUBLISHED
        };
        loan_against_publish(Operations { begin_loan, ..SHIPPED });
    }
}
