//! The thread of a context, and how other threads run jobs on it.

pub(crate) mod executor;
pub(crate) mod gl_thread;
pub(crate) mod headless;
pub(crate) mod queue;
