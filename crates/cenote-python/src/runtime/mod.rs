//! The interpreter: its lock, calls into Python code, exceptions, and waiting with Ctrl-C.

pub(crate) mod error;
mod error_text;
pub(crate) mod gil;
pub(crate) mod gil_cell;
pub(crate) mod py_call;
pub(crate) mod wait;
