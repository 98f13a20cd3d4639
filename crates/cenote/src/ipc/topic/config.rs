//! The configuration of a topic.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::ipc::pool::config::TensorPoolConfig;
use crate::ipc::ring::ring::RingShape;

/// What a publisher does if a subscriber has not yet taken the message that the next one overwrites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Overwrites it. The subscriber counts it as missed, and does not slow the publisher.
    #[default]
    KeepLast,
    /// Waits for the subscriber, no longer than this. Then `send` fails, and the error names the subscriber.
    /// `Duration::MAX` waits as long as the subscriber lives.
    Block(Duration),
    /// `send` fails at once. The error names the subscriber.
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
    /// How many messages a publisher keeps for its subscribers, from 1 to 65536. If messages have tensors, the pool must
    /// have more slots than that.
    pub depth: usize,
    /// What a publisher does if a subscriber is slow.
    pub policy: Policy,
    /// How many earlier messages a subscriber receives from each publisher that is already there, if the publisher still has
    /// them. From publishers that start later, it receives all messages.
    pub history: usize,
    /// Whether this object does not receive its own messages.
    pub ignore_own: bool,
    /// The configuration of the publisher's pool. Its `access` also says who may subscribe.
    pub pool: TensorPoolConfig,
    /// The sequence of a publisher's first message. Only for tests of what happens after 2^64 messages.
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
    /// The shape of a ring for messages of up to `payload` words. `tensors`: each message has a slot. Fails if the
    /// configuration makes no sense.
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
