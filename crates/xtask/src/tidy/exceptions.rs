//! Lists of exceptions to a rule, in `crates/xtask/exceptions`. A list may only shrink.
//!
//! A line is `NUMBER NAME`: how often the rule is broken by what has this name. Lines that begin with
//! `#` are comments. `xtask shrink` lowers the numbers and removes the lines that are not needed any
//! more; it never raises a number or adds a line.

use std::collections::BTreeMap;
use std::path::Path;

use crate::checkout::Checkout;
use crate::failure::Failure;
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;

/// How often a rule is broken, by name.
pub(super) type Counts = BTreeMap<String, usize>;

pub(super) const FOLDER: &str = "crates/xtask/exceptions";

/// Whether a list may allow more than there is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Slack {
    /// The numbers are ceilings.
    Allowed,
    /// A number that is too high is an error, and so is a line that is not needed.
    Refused,
}

/// What is counted for one list.
pub(super) struct Measured {
    /// The file in `FOLDER`, without `.txt`.
    pub(super) list: &'static str,
    /// What a number counts: `files in a cycle of imports`.
    pub(super) unit: &'static str,
    pub(super) slack: Slack,
    pub(super) counts: Counts,
}

impl Measured {
    fn path(&self) -> String {
        format!("{FOLDER}/{}.txt", self.list)
    }

    /// Compares with the list of the checkout.
    pub(crate) fn compare(&self, files: &Files) -> Vec<Finding> {
        let Some(text) = files.get(&self.path()) else {
            return vec![Finding::in_file(self.path(), "the list does not exist")];
        };
        match parse(text) {
            Ok(allowed) => self.differences(&allowed),
            Err(line) => vec![Finding::at(self.path(), line, "not `NUMBER NAME`")],
        }
    }

    fn differences(&self, allowed: &Counts) -> Vec<Finding> {
        let unit = self.unit;
        let mut findings = Vec::new();
        for (name, &count) in &self.counts {
            let limit = allowed.get(name).copied().unwrap_or(0);
            if count > limit {
                let message = format!("{name}: {count} {unit}, of which {limit} are allowed");
                findings.push(Finding::in_file(self.path(), message));
            }
        }
        if self.slack == Slack::Allowed {
            return findings;
        }
        for (name, &limit) in allowed {
            let count = self.counts.get(name).copied().unwrap_or(0);
            if count < limit {
                let message =
                    format!("{name}: allows {limit} {unit}, but there are {count}: {SHRINK}");
                findings.push(Finding::in_file(self.path(), message));
            }
        }
        findings
    }

    /// Rewrites the list in the checkout, with the numbers lowered to what there is.
    pub(crate) fn shrink(&self, checkout: &Checkout) -> Result<(), Failure> {
        let path = checkout.root.join(Path::new(&self.path()));
        let text = std::fs::read_to_string(&path)?;
        std::fs::write(&path, self.shrunk(&text))?;
        Ok(())
    }

    fn shrunk(&self, text: &str) -> String {
        let mut shrunk = String::new();
        for line in text.lines() {
            let line = match entry(line) {
                None => line.to_string(),
                Some((limit, name)) => match self.counts.get(name) {
                    None => continue,
                    Some(count) => format!("{} {name}", limit.min(*count)),
                },
            };
            shrunk.push_str(&line);
            shrunk.push('\n');
        }
        shrunk
    }
}

const SHRINK: &str = "run `cargo run -p xtask -- shrink`";

/// The number and the name of a line; `None` for comments and for lines of another form.
fn entry(line: &str) -> Option<(usize, &str)> {
    let (number, name) = line.split_once(' ')?;
    Some((number.parse().ok()?, name))
}

/// The list, or the number of the line that is not `NUMBER NAME`.
pub(super) fn parse(text: &str) -> Result<Counts, usize> {
    let mut counts = Counts::new();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (number, name) = entry(line).ok_or(index + 1)?;
        counts.insert(name.to_string(), number);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::texts;

    const LIST: &str = "# Why.\n3 one\n2 two\n1 gone\n";

    fn measured(slack: Slack) -> Measured {
        let counts = [("one", 4), ("two", 1), ("new", 1)];
        let counts = counts.map(|(name, count)| (name.to_string(), count)).into();
        Measured { list: "list", unit: "cases", slack, counts }
    }

    fn findings(slack: Slack, text: &str) -> Vec<String> {
        let files = Files::from(&[("crates/xtask/exceptions/list.txt", text)]);
        texts(&measured(slack).compare(&files))
    }

    #[test]
    fn more_than_the_list_allows_is_found() {
        assert_eq!(
            findings(Slack::Allowed, LIST),
            [
                "crates/xtask/exceptions/list.txt: new: 1 cases, of which 0 are allowed",
                "crates/xtask/exceptions/list.txt: one: 4 cases, of which 3 are allowed",
            ]
        );
    }

    #[test]
    fn a_list_that_allows_too_much_is_found() {
        let findings = findings(Slack::Refused, LIST);
        assert_eq!(findings.len(), 4);
        assert!(findings[2].contains("gone: allows 1 cases, but there are 0: run"), "{findings:?}");
        assert!(findings[3].contains("two: allows 2 cases, but there are 1: run"), "{findings:?}");
    }

    #[test]
    fn shrinking_never_adds_or_raises() {
        assert_eq!(measured(Slack::Refused).shrunk(LIST), "# Why.\n3 one\n1 two\n");
    }

    #[test]
    fn a_list_must_exist_and_have_numbers() {
        assert_eq!(
            findings(Slack::Allowed, "# Why.\none\n"),
            ["crates/xtask/exceptions/list.txt:2: not `NUMBER NAME`"]
        );
        assert_eq!(measured(Slack::Allowed).compare(&Files::from(&[])).len(), 1);
    }
}
