//! What went wrong: one line for people, and a code for programs.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use cenote::Error;

use crate::output::clean;

/// Says something that is no part of the output, in one line, whatever is in it.
pub(crate) fn say(text: &str) {
    // Nobody may be there to read it.
    let _ = writeln!(io::stderr(), "cenote: {}", clean(text));
}

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
    /// A signal of this number asked for the end.
    Interrupted(u8),
    /// What was to be told is told already; only the code is left.
    Told,
    /// Whoever read the output has gone.
    NobodyReads,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(text)
            | Failure::Nonsense(text)
            | Failure::NotFound(text)
            | Failure::Silence(text)
            | Failure::NoPermission(text) => f.write_str(text),
            Failure::Interrupted(_) => f.write_str("interrupted"),
            Failure::Told | Failure::NobodyReads => Ok(()),
        }
    }
}

impl Failure {
    /// Says it.
    pub(crate) fn report(&self) -> ExitCode {
        if !matches!(self, Failure::Told | Failure::NobodyReads) {
            say(&self.to_string());
        }
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        match self {
            Failure::NobodyReads => 0,
            Failure::Failed(_) | Failure::Told => 1,
            Failure::Nonsense(_) => 2,
            Failure::NotFound(_) => 3,
            Failure::Silence(_) => 4,
            Failure::NoPermission(_) => 5,
            // As shells have it.
            Failure::Interrupted(signal) => 128 + signal % 128,
        }
    }

    /// What the system says of a file.
    pub(crate) fn of_file(op: &str, path: &Path, error: &io::Error) -> Failure {
        let text = format!("{op} {} failed: {error}", path.display());
        match error.kind() {
            io::ErrorKind::PermissionDenied => Failure::NoPermission(text),
            io::ErrorKind::NotFound => Failure::NotFound(text),
            _ => Failure::Failed(text),
        }
    }

    /// The same, of a file.
    pub(crate) fn about(self, path: &Path) -> Failure {
        let about = |text: String| format!("{}: {text}", path.display());
        match self {
            Failure::Failed(text) => Failure::Failed(about(text)),
            Failure::Nonsense(text) => Failure::Nonsense(about(text)),
            Failure::NotFound(text) => Failure::NotFound(about(text)),
            Failure::Silence(text) => Failure::Silence(about(text)),
            Failure::NoPermission(text) => Failure::NoPermission(about(text)),
            wordless => wordless,
        }
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
            Error::NoSuchPool { .. } | Error::PoolClosed { .. } => Failure::NotFound(text),
            Error::NoAnswer { .. } => Failure::Silence(text),
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

/// Of the output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::NobodyReads,
            _ => Failure::from_text(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_what_went_wrong() {
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
        let about = Failure::Silence("nothing came".to_owned()).about(Path::new("x.npy"));
        assert_eq!((about.code(), about.to_string()), (4, "x.npy: nothing came".to_owned()));
        assert_eq!(Failure::Interrupted(2).about(Path::new("x.npy")).code(), 130);
    }
}
