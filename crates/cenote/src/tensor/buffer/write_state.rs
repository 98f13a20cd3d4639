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

#[cfg(test)]
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
