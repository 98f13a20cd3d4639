//! Why a command failed: one line for people, an exit code for programs.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use cenote::Error;

use crate::sanitize::sanitize;

/// Prints one line to standard error.
pub(crate) fn warn(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "cenote: {}", sanitize(text));
}

/// The result of a command, or of a part of it.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a command failed. Each variant has an exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Any failure that is not one of the others.
    Failed(String),
    /// An argument, a name, a file extension or an environment variable is invalid.
    Invalid(String),
    /// There is no such topic, pool, namespace or file.
    NotFound(String),
    /// Nothing arrived in time.
    TimedOut(String),
    /// This user lacks the permission.
    NoPermission(String),
    /// A signal of this number ended the command.
    Interrupted(u8),
    /// The failure is part of the output already; only the exit code is missing.
    Reported,
    /// The program that read the output has closed it.
    OutputClosed,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(text)
            | Failure::Invalid(text)
            | Failure::NotFound(text)
            | Failure::TimedOut(text)
            | Failure::NoPermission(text) => f.write_str(text),
            Failure::Interrupted(_) => f.write_str("interrupted"),
            Failure::Reported | Failure::OutputClosed => Ok(()),
        }
    }
}

impl Failure {
    /// Prints the failure to standard error, and returns its exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if !matches!(self, Failure::Reported | Failure::OutputClosed) {
            warn(&self.to_string());
        }
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        match self {
            Failure::OutputClosed => 0,
            Failure::Failed(_) | Failure::Reported => 1,
            Failure::Invalid(_) => 2,
            Failure::NotFound(_) => 3,
            Failure::TimedOut(_) => 4,
            Failure::NoPermission(_) => 5,
            // The convention of shells.
            Failure::Interrupted(signal) => 128 + signal % 128,
        }
    }

    /// An operation on a file failed with this error.
    pub(crate) fn of_file(op: &str, path: &Path, error: &io::Error) -> Failure {
        let text = format!("{op} {} failed: {error}", path.display());
        match error.kind() {
            io::ErrorKind::PermissionDenied => Failure::NoPermission(text),
            io::ErrorKind::NotFound => Failure::NotFound(text),
            _ => Failure::Failed(text),
        }
    }

    /// The same failure, with the file name before its text.
    pub(crate) fn about(self, path: &Path) -> Failure {
        let about = |text: String| format!("{}: {text}", path.display());
        match self {
            Failure::Failed(text) => Failure::Failed(about(text)),
            Failure::Invalid(text) => Failure::Invalid(about(text)),
            Failure::NotFound(text) => Failure::NotFound(about(text)),
            Failure::TimedOut(text) => Failure::TimedOut(about(text)),
            Failure::NoPermission(text) => Failure::NoPermission(about(text)),
            textless => textless,
        }
    }

    /// A failure with the text of another error.
    pub(crate) fn from_text(text: impl fmt::Display) -> Failure {
        Failure::Failed(text.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::BadName { .. } | Error::BadEnv { .. } => Failure::Invalid(text),
            Error::NoSuchPool { .. } | Error::PoolClosed { .. } => Failure::NotFound(text),
            Error::NoAnswer { .. } => Failure::TimedOut(text),
            Error::AttachRefused { .. } => Failure::NoPermission(text),
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

/// Errors of standard output; the others use [`Failure::of_file`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::from_text(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_exit_code() {
        let pool = || "camera".to_owned();
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let codes = [
            (Error::NoSuchPool { pool: pool() }, 3),
            (Error::PoolClosed { pool: pool(), pid: 7 }, 3),
            (Error::NoAnswer { pool: pool(), pid: 7, waited: std::time::Duration::ZERO }, 4),
            (Error::AttachRefused { pool: pool(), why: "it is another user's" }, 5),
            (Error::Connect { pool: pool(), source: denied() }, 5),
            (Error::Disconnected { mid_message: false }, 1),
        ];
        for (error, code) in codes {
            let text = error.to_string();
            let failure = Failure::from(error);
            assert_eq!((failure.code(), failure.to_string()), (code, text));
        }
        let file = |kind: io::ErrorKind| {
            Failure::of_file("reading", Path::new("x.png"), &io::Error::from(kind)).code()
        };
        assert_eq!(file(io::ErrorKind::PermissionDenied), 5);
        assert_eq!((file(io::ErrorKind::NotFound), file(io::ErrorKind::IsADirectory)), (3, 1));
        assert_eq!(Failure::Interrupted(15).code(), 143);
        let about = Failure::TimedOut("nothing arrived".to_owned()).about(Path::new("x.npy"));
        assert_eq!((about.code(), about.to_string()), (4, "x.npy: nothing arrived".to_owned()));
        assert_eq!(Failure::Interrupted(2).about(Path::new("x.npy")).code(), 130);
    }
}
