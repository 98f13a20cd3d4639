//! Atomics come from `sync`, which replaces them by those of loom in its tests.

use crate::tidy::exceptions::{Counts, Measured, Slack};
use crate::tidy::files::Files;
use crate::tidy::imports::paths_of;

const LIBRARY: &str = "crates/cenote/src/";
const ALLOWED: &str = "crates/cenote/src/sync/";

/// How often each file outside `sync` names the atomics of the standard library.
pub(crate) fn measure(files: &Files) -> Measured {
    let mut counts = Counts::new();
    let sources = files.under(LIBRARY, ".rs").filter(|(path, _)| !path.starts_with(ALLOWED));
    for (path, text) in sources {
        let count = paths_of(text).iter().filter(|path| is_atomic(path)).count();
        if count > 0 {
            counts.insert(path.to_string(), count);
        }
    }
    Measured { list: "atomics", unit: "uses of std::sync::atomic", slack: Slack::Refused, counts }
}

fn is_atomic(path: &[String]) -> bool {
    match path {
        [root, sync, atomic, ..] => {
            ["std", "core"].contains(&root.as_str()) && sync == "sync" && atomic == "atomic"
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_of_the_standard_library_are_found_outside_sync() {
        let atomic = "use std::sync::{Arc, atomic::{AtomicBool, Ordering}};";
        let files = Files::from(&[
            ("crates/cenote/src/sync/mod.rs", atomic),
            ("crates/cenote/src/a.rs", atomic),
            ("crates/cenote/src/b.rs", "fn f() { core::sync::atomic::fence() }"),
            ("crates/cenote/src/c.rs", "use crate::sync::atomic::AtomicBool; // std::sync::atomic"),
            ("crates/compare/src/d.rs", atomic),
        ]);
        let expected = [("a.rs", 2), ("b.rs", 1)];
        let expected = expected.map(|(file, count)| ([LIBRARY, file].concat(), count));
        assert_eq!(measure(&files).counts, expected.into());
    }
}
