//! The order of the code, as `ARCHITECTURE.md` describes it.

mod atomics;
mod cycles;
mod folder_sizes;
mod layers;
mod unsafe_files;

use crate::tidy::exceptions::Measured;
use crate::tidy::files::Files;

pub(super) use layers::check as check_layers;
pub(super) use unsafe_files::check as check_unsafe_files;

/// The page that describes the order.
const PAGE: &str = "ARCHITECTURE.md";

/// What is counted for the lists of exceptions.
pub(super) fn measured(files: &Files) -> Vec<Measured> {
    vec![
        folder_sizes::measure(files),
        cycles::measure(files),
        layers::measure(files),
        atomics::measure(files),
    ]
}
