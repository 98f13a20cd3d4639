//! Every relative link in a Markdown file leads to a file that exists, and to a heading in it.

use crate::tidy::docs::markdown::{Heading, Link};
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;

pub(crate) fn check(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (page, text) in files.under("", ".md") {
        for link in Link::all(text).iter().filter(|link| !link.is_external()) {
            if let Some(problem) = problem(files, page, text, link) {
                findings.push(Finding::at(page, link.line, problem));
            }
        }
    }
    findings
}

fn problem(files: &Files, page: &str, text: &str, link: &Link) -> Option<String> {
    let (path, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
    let target = if path.is_empty() { Some(page.to_string()) } else { resolve(page, path) };
    let Some(target) = target.filter(|target| exists(files, target)) else {
        return Some(format!("`{}` does not exist", link.target));
    };
    if anchor.is_empty() || !target.ends_with(".md") {
        return None;
    }
    let target_text = if target == page { text } else { files.get(&target)? };
    let has_anchor = Heading::all(target_text).iter().any(|heading| heading.anchor() == anchor);
    if has_anchor { None } else { Some(format!("`{}`: no such heading", link.target)) }
}

/// A path relative to a page, from the root of the checkout. `None` if it leads out of that.
pub(super) fn resolve(page: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// A file, or a folder with files.
fn exists(files: &Files, path: &str) -> bool {
    let folder = format!("{path}/");
    files.get(path).is_some() || files.paths().any(|file| file.starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::texts;

    #[test]
    fn links_must_lead_somewhere() {
        let files = Files::from(&[
            (
                "README.md",
                "[a](guide/a.md) [b](guide/b.md)\n[out](../x.md) [guide](guide)\n[x](https://x/y)",
            ),
            (
                "guide/a.md",
                "# The a\n[up](../README.md) [self](#the-a) [not](#the-b)\n[wrong](README.md)",
            ),
        ]);
        assert_eq!(
            texts(&check(&files)),
            [
                "README.md:1: `guide/b.md` does not exist",
                "README.md:2: `../x.md` does not exist",
                "guide/a.md:2: `#the-b`: no such heading",
                "guide/a.md:3: `README.md` does not exist",
            ]
        );
    }
}
