//! What went wrong: one line for people, and a code for programs.

use std::fmt;
use std::io;
use std::process::ExitCode;

use cenote::Error;

/// What a command comes to.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It failed.
    Failed(String),
    /// What was asked for makes no sense.
    Nonsense(String),
    /// There is no such topic, pool, namespace or file.
    NotFound(String),
    /// Nothing came in time.
    Silence(String),
    /// The system does not let this user.
    NoPermission(String),
    /// What was to be told is told already; only the code is left.
    Told,
    /// Whoever read the output has gone.
    NobodyReads,
}

impl Failure {
    /// Says it, in one line.
    pub(crate) fn report(self) -> ExitCode {
        let (code, text) = match self {
            Failure::NobodyReads => return ExitCode::SUCCESS,
            Failure::Told => return ExitCode::from(1),
            Failure::Failed(text) => (1, text),
            Failure::Nonsense(text) => (2, text),
            Failure::NotFound(text) => (3, text),
            Failure::Silence(text) => (4, text),
            Failure::NoPermission(text) => (5, text),
        };
        // Whatever is in it, it is one line.
        eprintln!("cenote: {}", text.replace(char::is_control, " "));
        ExitCode::from(code)
    }

    /// It failed, in the words of somebody else.
    pub(crate) fn from_text(text: impl fmt::Display) -> Failure {
        Failure::Failed(text.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::BadName { .. } | Error::BadEnv { .. } => Failure::Nonsense(text),
            Error::NoSuchPool { .. } => Failure::NotFound(text),
            Error::UntrustedDir { .. } | Error::ClosedDir { .. } => Failure::NoPermission(text),
            Error::Directory { source, .. } | Error::Connect { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Failure::NoPermission(text)
            }
            _ => Failure::Failed(text),
        }
    }
}

/// Of the output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::NobodyReads,
            _ => Failure::from_text(error),
        }
    }
}
