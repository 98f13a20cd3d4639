//! The part of a topic that sends.

pub(crate) mod publisher;
pub(crate) mod signal;
pub(crate) mod stage;

pub(crate) use publisher::Publisher;
