//! What two processes share: mapped words, the packets that they exchange, and the checks of received files.

pub(crate) mod fd_checks;
pub(crate) mod wire;
pub(crate) mod words;
