//! The part of a topic that receives.

pub(crate) mod discovery;
pub(crate) mod pools;
pub(crate) mod publisher_link;
#[cfg(feature = "tokio")]
pub(crate) mod recv_async;
pub(crate) mod resolve;
pub(crate) mod subscriber;
pub(crate) mod wait_set;
pub(crate) mod wakeup;

pub(crate) use subscriber::Subscriber;
