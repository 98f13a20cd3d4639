//! What does not change during the life of a pool.

use std::fmt;
use std::time::Duration;

use super::memory::Extras;

/// Is told that a request does not fit, and says whether to try again.
pub(super) type OnLimit = dyn Fn(Shortage) -> bool + Send + Sync;

/// A request that does not fit below the hard limit of its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// Bytes of the block that the request needs.
    pub asked: usize,
    /// Bytes that are in use.
    pub live: usize,
    /// The limit.
    pub limit: usize,
}

/// What does not change during the life of a pool.
pub(super) struct Settings {
    /// Blocks larger than this are not retained.
    pub(super) largest_retained: usize,
    /// For large blocks.
    pub(super) extras: Extras,
    /// Retained blocks that nobody used for this long are freed.
    pub(super) idle: Option<Duration>,
    /// The most bytes in use and retained together.
    pub(super) limit: usize,
    pub(super) on_limit: Option<Box<OnLimit>>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("idle", &self.idle).finish_non_exhaustive()
    }
}
