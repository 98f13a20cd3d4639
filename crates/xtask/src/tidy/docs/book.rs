//! The contents page of the guide lists every page. `links.rs` checks that what it lists exists.

use std::collections::BTreeSet;

use crate::tidy::docs::links::resolve;
use crate::tidy::docs::markdown::Link;
use crate::tidy::docs::pages::CONTENTS;
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;

pub(crate) fn check(files: &Files) -> Vec<Finding> {
    let Some(contents) = files.get(CONTENTS) else {
        return vec![Finding::in_file(CONTENTS, "the guide has no contents page")];
    };
    let listed: BTreeSet<String> = Link::all(contents)
        .iter()
        .filter_map(|link| resolve(CONTENTS, link.target.split('#').next().unwrap_or_default()))
        .collect();
    files
        .under("guide/", ".md")
        .filter(|(page, _)| *page != CONTENTS && !listed.contains(*page))
        .map(|(page, _)| Finding::in_file(page, format!("{CONTENTS} does not list it")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::texts;

    #[test]
    fn every_page_must_be_listed() {
        let files = Files::from(&[
            (CONTENTS, "- [a](a.md)\n  - [b](./design/b.md)\n"),
            ("guide/a.md", ""),
            ("guide/design/b.md", ""),
            ("guide/design/c.md", ""),
        ]);
        assert_eq!(texts(&check(&files)), ["guide/design/c.md: guide/SUMMARY.md does not list it"]);
    }

    #[test]
    fn a_guide_needs_a_contents_page() {
        let files = Files::from(&[("guide/a.md", "")]);
        assert_eq!(texts(&check(&files)), ["guide/SUMMARY.md: the guide has no contents page"]);
    }
}
