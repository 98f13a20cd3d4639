//! How a topic is used.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::ipc::pool::config::TensorPoolConfig;
use crate::ipc::ring::ring::RingShape;

/// What a publisher does when a subscriber has not yet taken the message that the next one would
/// push out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Pushes it out: the subscriber is told how many it missed, and slows nobody.
    #[default]
    KeepLast,
    /// Waits for the subscriber, but not longer than this. Then sending fails, and the error names
    /// the subscriber. `Duration::MAX` waits for as long as the subscriber lives.
    Block(Duration),
    /// Fails at once. The error names the subscriber.
    Reject,
}

/// The configuration of a [`Topic`](crate::Topic).
///
/// ```
/// use cenote::{Policy, TopicConfig};
///
/// let config = TopicConfig { depth: 4, policy: Policy::Reject, ..TopicConfig::default() };
/// assert_eq!(TopicConfig::default().depth, 16);
/// # let _ = config;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// How many messages a publisher keeps for its subscribers, from 1 to 65536. Where these are tensors,
    /// the pool must have more slots than that.
    pub depth: usize,
    /// What happens when a subscriber is slower than that.
    pub policy: Policy,
    /// How many messages from before it came a subscriber asks those publishers for that were there
    /// first. It gets as many as there still are; of those that come later, all.
    pub history: usize,
    /// Do not receive what was sent through this very object.
    pub ignore_own: bool,
    /// The pool that a publisher allocates from. Who may subscribe is its `access`.
    pub pool: TensorPoolConfig,
    /// The sequence of a publisher's first message. Only tests of what happens after 2^64 messages
    /// have a use for it.
    #[doc(hidden)]
    pub first_sequence: u64,
}

impl Default for TopicConfig {
    fn default() -> Self {
        TopicConfig {
            depth: 16,
            policy: Policy::KeepLast,
            history: 0,
            ignore_own: false,
            pool: TensorPoolConfig::default(),
            first_sequence: 0,
        }
    }
}

impl TopicConfig {
    /// The ring for messages of up to `payload` words, which may be `tensors`, if the configuration makes sense.
    pub(crate) fn ring(&self, payload: usize, tensors: bool) -> Result<RingShape> {
        let slots = self.pool.check()?;
        let bad = |rule| Error::BadConfig { field: "depth", rule };
        let shape = RingShape::new(self.depth, payload).ok_or(bad("it must be from 1 to 65536"))?;
        if tensors && self.depth >= slots as usize {
            return Err(bad("it must be less than `pool.max_slots`: each message keeps a slot"));
        }
        Ok(shape)
    }
}
