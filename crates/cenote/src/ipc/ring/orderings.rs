//! The fences and orderings of the ring protocol, each by its step.

use crate::sync::Ordering;

/// The steps of `ring.rs` (W, A) and `subscriber_row.rs` (S, T) that a loom model can leave out to show that they are
/// needed.
pub(crate) trait Orderings {
    /// W2.
    const WRITE_FENCE: bool = true;
    /// A3.
    const READ_FENCE: bool = true;
    /// W4.
    const PUBLISH: Ordering = Ordering::Release;
    /// W5, which is T2 of a publisher.
    const WAKE_FENCE: bool = true;
    /// S2 of a publisher.
    const WAIT_FENCE: bool = true;
    /// S2 of a subscriber.
    const ARM_FENCE: bool = true;
    /// T2 of a subscriber.
    const TAKE_FENCE: bool = true;
}

/// The whole protocol, as the library uses it.
#[derive(Debug)]
pub(crate) struct Shipped;

impl Orderings for Shipped {}
