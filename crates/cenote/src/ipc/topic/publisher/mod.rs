//! The sending side of a topic.

pub(crate) mod change_signal;
pub(crate) mod publisher;
pub(crate) mod stage;
pub(crate) mod state;
