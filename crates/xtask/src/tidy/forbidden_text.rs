//! Text that no file may have: ignored tests, unfinished code, names of package hosts, paths of one
//! machine.

use crate::tidy::files::Files;
use crate::tidy::finding::Finding;

/// In parts, so that this file does not have them.
const HOSTS: [&[&str]; 8] = [
    &["crates", "io"],
    &["static", "rust-lang", "org"],
    &["pypi", "org"],
    &["pythonhosted", "org"],
    &["npmjs", "org"],
    &["deb", "debian", "org"],
    &["security", "debian", "org"],
    &["index", "crates", "io"],
];

/// Top-level folders that are different on every machine.
const HOME_FOLDERS: [&str; 3] = ["work", "root", "home"];

pub(super) fn check(files: &Files) -> Vec<Finding> {
    let hosts: Vec<String> = HOSTS.iter().map(|parts| parts.join(".")).collect();
    let mut findings = Vec::new();
    for (path, text) in files.iter() {
        for (index, line) in text.lines().enumerate() {
            let mut find = |message: &str| findings.push(Finding::at(path, index + 1, message));
            if path.ends_with(".rs") {
                if line.contains(concat!("#[", "ignore")) {
                    find("an ignored test: repair it or remove it");
                }
                if has_macro(line, concat!("to", "do!(")) {
                    find("unfinished code");
                }
            }
            if path != "Cargo.lock" && hosts.iter().any(|host| line.contains(host)) {
                find("the name of a package host");
            }
            if names_home(line) {
                find("a path of one machine");
            }
        }
    }
    findings
}

/// The macro by itself, not as the end of a longer name.
fn has_macro(line: &str, call: &str) -> bool {
    line.match_indices(call).any(|(at, _)| !line[..at].ends_with(is_name_character))
}

fn is_name_character(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// An absolute path in a home folder: not the tail of another path.
fn names_home(line: &str) -> bool {
    HOME_FOLDERS.iter().any(|folder| {
        line.match_indices(&format!("/{folder}/")).any(|(at, _)| {
            !line[..at].ends_with(|c: char| is_name_character(c) || ".~-".contains(c))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::texts;

    #[test]
    fn ignored_tests_and_unfinished_code_are_found_in_rust() {
        let source = concat!("#[", "ignore]\nfn a() { to", "do!() }\nfn b() { not_to", "do!() }\n");
        let files = Files::from(&[("a.rs", source), ("a.md", source)]);
        assert_eq!(
            texts(&check(&files)),
            ["a.rs:1: an ignored test: repair it or remove it", "a.rs:2: unfinished code"]
        );
    }

    #[test]
    fn package_hosts_are_found_everywhere_but_in_the_lock_file() {
        let host = HOSTS[0].join(".");
        let files = Files::from(&[("Cargo.lock", &host), ("README.md", &host)]);
        assert_eq!(texts(&check(&files)), ["README.md:1: the name of a package host"]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let folder = HOME_FOLDERS[0];
        for (line, count) in [
            (format!("cd /{folder}/x"), 1),
            (format!("/{folder}/x"), 1),
            (format!("a/{folder}/x ~/{folder}/x ./{folder}/"), 0),
        ] {
            assert_eq!(check(&Files::from(&[("a.md", &line)])).len(), count, "{line}");
        }
    }
}
