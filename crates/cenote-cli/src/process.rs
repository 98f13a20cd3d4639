//! Child processes, their namespaces, and the signals that end or stop this program.

pub(crate) mod child;
pub(crate) mod interrupt;
pub(crate) mod job_control;
pub(crate) mod temporary_namespace;
