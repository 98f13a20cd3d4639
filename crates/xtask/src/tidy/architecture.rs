//! The order of the code, as `ARCHITECTURE.md` describes it.

mod folder_sizes;

use crate::tidy::Files;
use crate::tidy::exceptions::Measured;

/// What is counted for the lists of exceptions.
pub(super) fn measured(files: &Files) -> Vec<Measured> {
    vec![folder_sizes::measure(files)]
}
