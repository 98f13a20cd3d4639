//! Unix sockets: messages with file descriptors, and the process at the other end.

pub(crate) mod message;
pub(crate) mod packet;
pub(crate) mod peer;
pub(crate) mod seqpacket;
