//! No files import each other in a circle.

use crate::tidy::exceptions::{Counts, Measured, Slack};
use crate::tidy::files::Files;
use crate::tidy::imports::{ImportGraph, cycles};

/// The files that are in a cycle, and how many files each of those cycles has.
pub(crate) fn measure(files: &Files) -> Measured {
    let mut counts = Counts::new();
    for folder in source_folders(files) {
        for cycle in cycles(&ImportGraph::of(files, &folder)) {
            counts.extend(cycle.iter().map(|file| (file.clone(), cycle.len())));
        }
    }
    Measured {
        list: "cycles",
        unit: "files in its cycle of imports",
        slack: Slack::Refused,
        counts,
    }
}

/// `crates/NAME/src/` of every crate.
fn source_folders(files: &Files) -> Vec<String> {
    let folders = files.paths().filter_map(|path| {
        let (name, _) = path.strip_prefix("crates/")?.split_once("/src/")?;
        (!name.contains('/')).then(|| format!("crates/{name}/src/"))
    });
    let mut folders: Vec<String> = folders.collect();
    folders.dedup();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_found_in_any_crate() {
        let files = Files::from(&[
            ("crates/x/src/a.rs", "use crate::b::B;"),
            ("crates/x/src/b.rs", "use super::a::A;"),
            ("crates/x/src/c.rs", "use super::a::A;"),
            ("crates/y/src/a.rs", "use crate::b::B;"),
        ]);
        let expected = ["crates/x/src/a.rs", "crates/x/src/b.rs"].map(|file| (file.to_string(), 2));
        assert_eq!(measure(&files).counts, expected.into());
    }
}
