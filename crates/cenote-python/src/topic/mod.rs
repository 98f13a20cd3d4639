//! `cenote.Topic`: sending and receiving.

pub(crate) mod open_flag;
pub(crate) mod topic;
pub(crate) mod typed_topic;
