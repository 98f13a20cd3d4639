//! Why a stage did not succeed.

use std::fmt;
use std::io;

/// A stage fails, or the machine lacks a facility that the stage needs.
#[derive(Debug, PartialEq)]
pub(crate) enum Failure {
    Failed(String),
    Unavailable(String),
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure::Failed(message.into())
    }

    /// The stage cannot run on this machine. The run counts it as skipped.
    pub(crate) fn unavailable(message: impl Into<String>) -> Failure {
        Failure::Unavailable(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(message) => f.write_str(message),
            Failure::Unavailable(message) => write!(f, "NOT AVAILABLE: {message}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::new(error.to_string())
    }
}
