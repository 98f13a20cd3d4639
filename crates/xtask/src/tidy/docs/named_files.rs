//! Files that the pages on the design name exist.

use crate::tidy::docs::markdown::spans_by_line;
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;

const PAGES: [&str; 2] = ["ARCHITECTURE.md", "guide/design/"];

const ENDINGS: [&str; 8] = [".rs", ".md", ".toml", ".py", ".pyi", ".sh", ".yml", ".h"];

pub(crate) fn check(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_design = |path: &str| PAGES.iter().any(|page| path.starts_with(page));
    for (page, text) in files.under("", ".md").filter(|(path, _)| is_design(path)) {
        for (line, span) in spans_by_line(text) {
            if is_path(span) && !exists(files, span) {
                findings.push(Finding::at(page, line, format!("no file or folder `{span}`")));
            }
        }
    }
    findings
}

/// A file with an ending of this repository, or a folder with a `/` at its end. Without spaces, places
/// for other names (`STAGE.log`) and absolute paths.
fn is_path(span: &str) -> bool {
    let is_path_character = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let is_file = ENDINGS.iter().any(|ending| span.len() > ending.len() && span.ends_with(ending));
    (is_file || span.ends_with('/'))
        && span.chars().all(is_path_character)
        && !span.starts_with(['/', '.'])
}

/// Whether a path of the checkout ends with these parts, or begins or continues with this folder.
fn exists(files: &Files, name: &str) -> bool {
    let inner = format!("/{name}");
    files.paths().any(|path| {
        let is_file = path == name || path.ends_with(&inner);
        let is_folder = name.ends_with('/') && (path.starts_with(name) || path.contains(&inner));
        is_file || is_folder
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::texts;

    #[test]
    fn files_and_folders_must_exist() {
        let page =
            "See `ipc/ring.rs`, `ipc/old.rs`, `ipc/` and `pool/`.\n`/etc/x.rs` and `NAME .rs`";
        let files = Files::from(&[
            ("guide/design/ring.md", page),
            ("guide/other.md", "`ipc/old.rs`"),
            ("crates/cenote/src/ipc/ring.rs", ""),
        ]);
        assert_eq!(
            texts(&check(&files)),
            [
                "guide/design/ring.md:1: no file or folder `ipc/old.rs`",
                "guide/design/ring.md:1: no file or folder `pool/`",
            ]
        );
    }
}
