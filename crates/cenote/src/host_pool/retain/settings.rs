//! The settings of a pool that do not change after it is built.

use std::fmt;
use std::time::Duration;

use super::block::Extras;

/// Is called with a request that exceeds the limit. Returns whether to try again.
pub(crate) type OnLimit = dyn Fn(LimitReached) -> bool + Send + Sync;

/// A request that exceeds the hard limit of its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitReached {
    /// The bytes of the block that the request needs.
    pub asked: usize,
    /// The bytes in use.
    pub live: usize,
    /// The limit in bytes.
    pub limit: usize,
}

pub(crate) struct Settings {
    /// Blocks larger than this are not retained.
    pub(crate) largest_retained: usize,
    /// For large blocks.
    pub(crate) extras: Extras,
    /// Retained blocks that were not used for this long are freed.
    pub(crate) idle: Option<Duration>,
    /// The most bytes in use and retained together.
    pub(crate) limit: usize,
    pub(crate) on_limit: Option<Box<OnLimit>>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("idle", &self.idle).finish_non_exhaustive()
    }
}
