//! The README, the pages of the guide, and the examples.

use std::path::Path;

use crate::tidy::docs::markdown::Fence;
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;
use crate::toolchain::is_executable;

/// The files that run the examples of pages.
const RUNNERS: [&str; 2] = ["crates/cenote/src/lib.rs", "crates/cenote-python/tests/test_doc.py"];

/// The contents page of the book, which `book.rs` checks.
pub(super) const CONTENTS: &str = "guide/SUMMARY.md";

const MAX_EXAMPLE_LINES: usize = 60;
const LONG_FILE_LINES: usize = 600;

pub(crate) fn check(files: &Files, root: &Path) -> Vec<Finding> {
    let mut findings = commands(files, |command| is_executable(&root.join(command)));
    findings.extend(guide(files));
    findings.extend(examples(files));
    findings
}

/// Commands that the README names can be started.
fn commands(files: &Files, is_executable: impl Fn(&str) -> bool) -> Vec<Finding> {
    let readme = files.get("README.md").unwrap_or_default();
    let mut commands = vec!["scripts/demo", "scripts/test"];
    for (at, prefix) in readme.match_indices("scripts/") {
        let rest = &readme[at + prefix.len()..];
        let length = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
        commands.push(&readme[at..at + prefix.len() + length]);
    }
    commands.sort_unstable();
    commands.dedup();
    commands.retain(|command| !is_executable(command));
    let message = |command| format!("the command {command} does not exist or is not executable");
    commands.into_iter().map(|command| Finding::in_file("README.md", message(command))).collect()
}

/// The examples of every page run, and the README leads to every page.
fn guide(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    let readme = files.get("README.md").unwrap_or_default();
    let contents = files.get(CONTENTS).filter(|_| readme.contains(CONTENTS)).unwrap_or_default();
    let runners = RUNNERS.map(|runner| files.get(runner).unwrap_or_default());
    for (page, text) in files.under("guide/", ".md").filter(|(page, _)| *page != CONTENTS) {
        let in_guide = page.strip_prefix("guide/").unwrap_or(page);
        let is_run = runners.iter().any(|runner| runner.contains(in_guide));
        if !is_run && Fence::all(text).iter().any(Fence::is_runnable) {
            findings.push(Finding::in_file(page, "no test runs the examples of this page"));
        }
        if !readme.contains(page) && !contents.contains(in_guide) {
            findings
                .push(Finding::in_file(page, "neither the README nor its contents page names it"));
        }
    }
    findings
}

fn examples(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in files.under("crates/", ".rs").filter(|(path, _)| is_example(path)) {
        let lines = text.lines().count();
        if lines > MAX_EXAMPLE_LINES {
            let message = format!("an example of {lines} lines, more than {MAX_EXAMPLE_LINES}");
            findings.push(Finding::in_file(path, message));
        }
    }
    let first = files.get("crates/cenote/examples/first.rs").unwrap_or_default();
    // Without its first two lines, which are for readers of the file alone.
    let code: Vec<&str> = first.lines().skip(2).collect();
    let readme = files.get("README.md").unwrap_or_default();
    if code.is_empty() || !readme.contains(&code.join("\n")) {
        let message = "its first example is not crates/cenote/examples/first.rs";
        findings.push(Finding::in_file("README.md", message));
    }
    findings
}

/// `crates/NAME/examples/NAME.rs`.
fn is_example(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    parts.len() == 4 && parts[2] == "examples"
}

/// Files that have become long, without their tests. They are worth a look, and not an error.
pub(crate) fn long_files(files: &Files) -> Vec<Finding> {
    let sources = files.under("crates/", ".rs").filter(|(path, _)| path.contains("/src/"));
    let lengths = sources.map(|(path, text)| {
        (path, text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count())
    });
    lengths
        .filter(|(_, lines)| *lines > LONG_FILE_LINES)
        .map(|(path, lines)| Finding::in_file(path, format!("{lines} lines without its tests")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::texts;

    #[test]
    fn commands_of_the_readme_must_exist() {
        let files = Files::from(&[("README.md", "run `scripts/demo` or scripts/compare-all now")]);
        let findings = commands(&files, |command| command == "scripts/test");
        assert_eq!(
            texts(&findings),
            [
                "README.md: the command scripts/compare-all does not exist or is not executable",
                "README.md: the command scripts/demo does not exist or is not executable",
            ]
        );
    }

    #[test]
    fn pages_with_examples_must_be_run_and_be_named() {
        let code = "# Page\n```rust\nlet x = 1;\n```\n";
        let files = Files::from(&[
            ("README.md", "[a](guide/a.md) [b](guide/b.md)"),
            ("crates/cenote/src/lib.rs", "include_str!(\"../../../guide/a.md\")"),
            ("guide/a.md", code),
            ("guide/b.md", code),
            ("guide/c.md", "# No code\n"),
        ]);
        assert_eq!(
            texts(&guide(&files)),
            [
                "guide/b.md: no test runs the examples of this page",
                "guide/c.md: neither the README nor its contents page names it",
            ]
        );
    }

    #[test]
    fn a_contents_page_that_the_readme_names_names_pages_for_it() {
        let with_readme = |readme| {
            Files::from(&[
                ("README.md", readme),
                ("guide/SUMMARY.md", "[c](design/c.md)"),
                ("guide/design/c.md", "# No code\n"),
            ])
        };
        assert_eq!(guide(&with_readme("[contents](guide/SUMMARY.md)")), []);
        assert_eq!(guide(&with_readme("")).len(), 1);
    }

    #[test]
    fn examples_are_short_and_the_first_one_is_in_the_readme() {
        let long = "line\n".repeat(61);
        let first = "//! About\n\nfn main() {\n}\n";
        let bad = Files::from(&[
            ("README.md", "```rust\nfn main() {}\n```"),
            ("crates/cenote/examples/first.rs", first),
            ("crates/cenote/examples/long.rs", &long),
        ]);
        assert_eq!(
            texts(&examples(&bad)),
            [
                "crates/cenote/examples/long.rs: an example of 61 lines, more than 60",
                "README.md: its first example is not crates/cenote/examples/first.rs",
            ]
        );
        let good = Files::from(&[
            ("README.md", "```rust\nfn main() {\n}\n```"),
            ("crates/cenote/examples/first.rs", first),
        ]);
        assert_eq!(examples(&good), []);
    }

    #[test]
    fn long_files_are_counted_without_their_tests() {
        let tests = format!("{}#[cfg(test)]\n{}", "a\n".repeat(600), "b\n".repeat(600));
        let long = "a\n".repeat(601);
        let files = Files::from(&[("crates/a/src/a.rs", &tests), ("crates/a/src/b.rs", &long)]);
        assert_eq!(texts(&long_files(&files)), ["crates/a/src/b.rs: 601 lines without its tests"]);
    }
}
