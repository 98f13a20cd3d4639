//! The files that allow `unsafe` code are those that ARCHITECTURE.md lists, with a reason each. Code
//! for tests is not listed.

use std::collections::BTreeSet;

use crate::tidy::architecture::PAGE;
use crate::tidy::docs::marked_table;
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;
use crate::tidy::imports::{ImportGraph, names_word};

/// The folders that have a table. Before it is the marker `<!-- unsafe files of FOLDER -->`; file names
/// in its first column are relative to the folder.
const FOLDERS: [&str; 2] = ["crates/cenote/src", "crates/cenote-python/src"];

pub(crate) fn check(files: &Files) -> Vec<Finding> {
    FOLDERS.iter().flat_map(|folder| check_folder(files, folder)).collect()
}

fn check_folder(files: &Files, folder: &str) -> Vec<Finding> {
    let marker = format!("<!-- unsafe files of {folder} -->");
    let Some(table) = marked_table(files.get(PAGE).unwrap_or_default(), &marker) else {
        return vec![Finding::in_file(PAGE, format!("no table after `{marker}`"))];
    };
    let mut findings = Vec::new();
    let mut listed = BTreeSet::new();
    for row in &table.rows {
        for name in row.code_spans(0) {
            let path = format!("{folder}/{name}");
            if !files.get(&path).is_some_and(|text| names_word(text, "unsafe_code")) {
                let message = format!("{path} does not allow unsafe code, or does not exist");
                findings.push(Finding::at(PAGE, row.line, message));
            }
            listed.insert(path);
        }
    }
    let folder = format!("{folder}/");
    let graph = ImportGraph::of(files, &folder);
    for (path, text) in files.under(&folder, ".rs") {
        let is_source = graph.imports.contains_key(path);
        if is_source && names_word(text, "unsafe_code") && !listed.contains(path) {
            findings.push(Finding::in_file(
                path,
                format!("allows unsafe code; {PAGE} does not list it"),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::texts;

    #[test]
    fn the_table_and_the_code_must_agree() {
        let page = "<!-- unsafe files of crates/cenote/src -->\n\n| file | reason |\n|---|---|\n\
                    | `a.rs`, `safe.rs` | reason |\n| `gone.rs` | reason |\n";
        let allow = "#![allow(unsafe_code, reason = \"x\")]";
        let files = Files::from(&[
            (PAGE, page),
            ("crates/cenote/src/a.rs", allow),
            ("crates/cenote/src/new.rs", "#![allow(unsafe_code)] #[cfg(test)] mod tests;"),
            ("crates/cenote/src/new/tests.rs", allow),
            ("crates/cenote/src/safe.rs", "#[cfg(test)]\n#[allow(unsafe_code)]\nmod tests {}"),
        ]);
        assert_eq!(
            texts(&check(&files)),
            [
                "ARCHITECTURE.md:5: crates/cenote/src/safe.rs does not allow unsafe code, or does not exist",
                "ARCHITECTURE.md:6: crates/cenote/src/gone.rs does not allow unsafe code, or does not exist",
                "crates/cenote/src/new.rs: allows unsafe code; ARCHITECTURE.md does not list it",
                "ARCHITECTURE.md: no table after `<!-- unsafe files of crates/cenote-python/src -->`",
            ]
        );
    }
}
