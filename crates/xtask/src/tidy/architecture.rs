//! The order of the code, as `ARCHITECTURE.md` describes it.

mod cycles;
mod folder_sizes;

use crate::tidy::exceptions::Measured;
use crate::tidy::files::Files;

/// What is counted for the lists of exceptions.
pub(super) fn measured(files: &Files) -> Vec<Measured> {
    vec![folder_sizes::measure(files), cycles::measure(files)]
}
