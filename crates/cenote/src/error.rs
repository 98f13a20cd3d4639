//! What can go wrong, said so that the caller can act on it.
//!
//! Every variant carries what was asked and what was found. This module stands leftmost in the
//! order of imports, so its fields are plain numbers and names rather than the types that failed.
//!
//! There is one enum, and a file for what can go wrong with each noun. An enum has to be written
//! in one piece, so such a file is a macro, which adds its variants to those that it is given.

/// Has each part add its variants, then makes the enum of them, and of those that are of no part.
macro_rules! gather {
    ([$part:ident $($parts:ident)*] $($variants:tt)*) => {
        $part! { [$($parts)*] $($variants)* }
    };
    ([] $($variants:tt)*) => {
        /// Any failure of this crate.
        #[derive(Debug, thiserror::Error)]
        #[non_exhaustive]
        pub enum Error {
            $($variants)*

            /// A name that cannot be used.
            #[error("the name {given:?} cannot be used: {rule}")]
            BadName {
                /// The name.
                given: Box<str>,
                /// The rule it breaks.
                rule: &'static str,
            },

            /// Text that must be short and is not.
            #[error("{what} `{given}` has {len} bytes; there is room for {max}")]
            TextTooLong {
                /// What it was to be.
                what: &'static str,
                /// The text.
                given: Box<str>,
                /// Its bytes.
                len: usize,
                /// The most that fit.
                max: usize,
            },

            /// A configuration that cannot be.
            #[error("bad configuration: {field}: {rule}")]
            BadConfig {
                /// The field.
                field: &'static str,
                /// The rule it breaks.
                rule: &'static str,
            },

            /// An environment variable with a value that means nothing.
            #[error("environment variable {name}={value:?} is not understood; use {expected}")]
            BadEnv {
                /// The variable.
                name: &'static str,
                /// Its value.
                value: Box<str>,
                /// What would be understood.
                expected: &'static str,
            },

            /// Something about OpenGL.
            #[cfg(all(target_os = "linux", feature = "gl"))]
            #[error(transparent)]
            Gl(#[from] GlError),

            /// The operating system refused.
            #[error("{op} failed: {source}")]
            Os {
                /// What was attempted.
                op: &'static str,
                /// What the system said.
                source: io::Error,
            },
        }
    };
}

#[macro_use]
mod buffer;
#[macro_use]
mod camera;
#[macro_use]
mod cloud;
#[macro_use]
mod depth;
#[macro_use]
mod descriptor;
#[macro_use]
mod directory;
#[macro_use]
mod dtype;
#[macro_use]
mod fd;
#[cfg(all(target_os = "linux", feature = "gl"))]
mod gl;
#[macro_use]
mod image;
#[macro_use]
mod layout;
#[macro_use]
mod memory;
#[macro_use]
mod pool;
#[macro_use]
mod topic;
mod why;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

#[cfg(all(target_os = "linux", feature = "gl"))]
pub use gl::{GlCode, GlError, GlGone};
pub use why::{Holder, Limit, NotWritable, Shortage, Tried, Unavailable};

/// A shape or a list of axes inside an error.
pub type Dims = Box<[usize]>;

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

gather! {
    [layout dtype memory fd image cloud depth directory pool descriptor topic buffer camera]
}

impl Error {
    /// Wraps what the operating system said.
    pub(crate) fn os(op: &'static str, source: impl Into<io::Error>) -> Self {
        Error::Os { op, source: source.into() }
    }
}

fn list(holders: &[Holder]) -> String {
    holders.iter().map(|holder| format!("; {holder}")).collect()
}
