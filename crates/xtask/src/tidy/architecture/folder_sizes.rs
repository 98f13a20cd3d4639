//! A folder has few files at one level, so that its listing is a table of contents.

use crate::tidy::exceptions::{Counts, Measured, Slack};
use crate::tidy::files::Files;

const MAX_FILES: usize = 14;

/// Folders of sources and tests with more files than `MAX_FILES`.
pub(crate) fn measure(files: &Files) -> Measured {
    let mut counts = Counts::new();
    for path in files.paths().filter(|path| is_source_or_test(path)) {
        if let Some((folder, _)) = path.rsplit_once('/') {
            *counts.entry(folder.to_string()).or_default() += 1;
        }
    }
    counts.retain(|_, count| *count > MAX_FILES);
    Measured { list: "folders", unit: "files at one level", slack: Slack::Refused, counts }
}

/// `crates/NAME/src/...` and `crates/NAME/tests/...`.
fn is_source_or_test(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("crates")
        && parts.next().is_some()
        && matches!(parts.next(), Some("src" | "tests"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &str, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{folder}/f{number}.rs")).collect()
    }

    #[test]
    fn folders_are_counted_at_one_level() {
        let mut paths = files("crates/a/src/full", 15);
        paths.extend(files("crates/a/src/just", 14));
        paths.extend(files("crates/a/src/just/deeper", 14));
        paths.extend(files("guide", 20));
        let texts: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
        let measured = measure(&Files::from(&texts));
        assert_eq!(measured.counts, [("crates/a/src/full".to_string(), 15)].into());
    }
}
