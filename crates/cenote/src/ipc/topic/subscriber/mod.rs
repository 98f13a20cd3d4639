//! The receiving side of a topic.

pub(crate) mod disconnect;
pub(crate) mod discovery;
pub(crate) mod publisher_link;
pub(crate) mod receive_state;
#[cfg(feature = "tokio")]
pub(crate) mod recv_async;
pub(crate) mod resolve;
pub(crate) mod subscriber;
pub(crate) mod wait_set;
