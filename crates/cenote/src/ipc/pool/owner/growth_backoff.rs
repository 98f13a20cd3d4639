//! When a pool tries again to grow ahead of need, after the system refused.

use crate::intervals::GROW_AHEAD_BACKOFF;

/// When to try growing backoff of need again, after it was refused. Counted in allocations that
/// would have liked it, for the hot path reads no clock.
#[derive(Debug, Default)]
pub(crate) struct GrowthBackoff {
    patience: u32,
    left: u32,
}

impl GrowthBackoff {
    /// Whether it is time.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        due
    }

    pub(crate) fn granted(&mut self) {
        *self = GrowthBackoff::default();
    }

    /// Waits twice as long as the last time.
    pub(crate) fn refused(&mut self) {
        self.patience = (2 * self.patience).clamp(16, GROW_AHEAD_BACKOFF);
        self.left = self.patience;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_asked_for_less_and_less_often() {
        let mut backoff = GrowthBackoff::default();
        assert!(backoff.is_due() && backoff.is_due());
        let mut pause = || {
            backoff.refused();
            (0..).take_while(|_| !backoff.is_due()).count()
        };
        let pauses: Vec<usize> = (0..20).map(|_| pause()).collect();
        assert_eq!(pauses[..3], [16, 32, 64]);
        assert_eq!(pauses[19], GROW_AHEAD_BACKOFF as usize);
        backoff.granted();
        assert!(backoff.is_due());
    }
}
