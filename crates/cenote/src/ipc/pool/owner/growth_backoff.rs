//! When a pool tries again to grow ahead of need, after the system refused.

use crate::intervals::GROW_AHEAD_BACKOFF;

/// When to try again to grow ahead of need, after the system refused. Counts allocations that would grow the pool,
/// because the hot path reads no clock.
#[derive(Debug, Default)]
pub(crate) struct GrowthBackoff {
    pause: u32,
    left: u32,
}

impl GrowthBackoff {
    /// Whether it is time to try. Counts one allocation.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        due
    }

    pub(crate) fn granted(&mut self) {
        *self = GrowthBackoff::default();
    }

    /// Doubles the pause.
    pub(crate) fn refused(&mut self) {
        self.pause = (2 * self.pause).clamp(16, GROW_AHEAD_BACKOFF);
        self.left = self.pause;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_doubles_the_pause() {
        let mut backoff = GrowthBackoff::default();
        assert!(backoff.is_due() && backoff.is_due());
        let mut next_pause = || {
            backoff.refused();
            (0..).take_while(|_| !backoff.is_due()).count()
        };
        let pauses: Vec<usize> = (0..20).map(|_| next_pause()).collect();
        assert_eq!(pauses[..3], [16, 32, 64]);
        assert_eq!(pauses[19], GROW_AHEAD_BACKOFF as usize);
        backoff.granted();
        assert!(backoff.is_due());
    }
}
