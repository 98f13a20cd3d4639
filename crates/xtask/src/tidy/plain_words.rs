//! Texts are in plain English: comments, names and pages have none of the words in the list `words`,
//! except as often as the list allows.

use crate::tidy::exceptions::{self, Counts, Measured, Slack};
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;

const LIST: &str = "words";

const FOLDERS: [&str; 3] = ["crates/", "guide/", "scripts/"];
const PAGES: [&str; 5] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];

/// The lists of exceptions, and this file.
const LEFT_OUT: [&str; 2] = [exceptions::FOLDER, "crates/xtask/src/tidy/plain_words.rs"];

/// How many places of a word that is there too often are shown.
const PLACES: usize = 20;

pub(super) fn check(files: &Files) -> Vec<Finding> {
    let measured = measure(files);
    let mut findings = measured.compare(files);
    let allowed = allowed(files);
    for (word, count) in measured.counts {
        if allowed.get(&word).is_some_and(|limit| count > *limit) {
            let places = places(files, &[word.split(' ').collect()]);
            let message = format!("\"{word}\"");
            let places = places.into_iter().take(PLACES);
            findings.extend(places.map(|(path, line, _)| Finding::at(path, line, &message)));
        }
    }
    findings
}

/// How often each word or phrase of the list is there.
pub(super) fn measure(files: &Files) -> Measured {
    let allowed = allowed(files);
    let phrases: Vec<Vec<&str>> = allowed.keys().map(|name| name.split(' ').collect()).collect();
    let mut counts: Counts = allowed.keys().map(|name| (name.clone(), 0)).collect();
    for (_, _, phrase) in places(files, &phrases) {
        *counts.entry(phrase).or_default() += 1;
    }
    Measured { list: LIST, unit: "uses", slack: Slack::Allowed, counts }
}

fn allowed(files: &Files) -> Counts {
    let text = files.get(&format!("{}/{LIST}.txt", exceptions::FOLDER)).unwrap_or_default();
    exceptions::parse(text).unwrap_or_default()
}

/// Where phrases are: the file, the line that each begins in, and the phrase.
fn places<'a>(files: &'a Files, phrases: &[Vec<&str>]) -> Vec<(&'a str, usize, String)> {
    let is_ours = |path: &str| {
        (FOLDERS.iter().any(|folder| path.starts_with(folder)) || PAGES.contains(&path))
            && !LEFT_OUT.iter().any(|left_out| path.starts_with(left_out))
    };
    let mut places = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| is_ours(path)) {
        for (line, phrase) in occurrences(text, phrases) {
            places.push((path, line, phrase.join(" ")));
        }
    }
    places
}

/// The phrases in a text, with the line that each begins in.
fn occurrences<'a>(text: &str, phrases: &'a [Vec<&'a str>]) -> Vec<(usize, &'a [&'a str])> {
    let text = text.to_lowercase();
    let words: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .flat_map(|(index, line)| words(line).map(move |word| (index + 1, word)))
        .collect();
    let mut found = Vec::new();
    for (index, (line, _)) in words.iter().enumerate() {
        for phrase in phrases {
            let here = words[index..].iter().map(|(_, word)| *word).take(phrase.len());
            if here.eq(phrase.iter().copied()) {
                found.push((*line, phrase.as_slice()));
            }
        }
    }
    found
}

/// The words of a line. Underscores separate words, and so do the slashes of a comment; other
/// punctuation is kept as a word, so that no phrase spans it.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let line = line.trim_start_matches([' ', '/', '!', '#', '*', '>']);
    line.split([' ', '\t', '_']).flat_map(parts).filter(|word| !word.is_empty())
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let is_letter = |c: char| c.is_alphanumeric();
        let end = match is_letter(first) {
            true => rest.find(|c| !is_letter(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (part, after) = rest.split_at(end);
        rest = after;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::texts;

    const WORDS: &str = "0 whoever\n1 nobody\n0 of its own\n0 but for\n";

    fn findings(text: &str) -> Vec<String> {
        let list = "crates/xtask/exceptions/words.txt";
        texts(&check(&Files::from(&[("guide/a.md", text), (list, WORDS)])))
    }

    #[test]
    fn words_are_counted_in_comments_and_in_names() {
        assert_eq!(
            findings("/// Whoever reads this.\nfn that_whoever_reads() {}"),
            [
                "crates/xtask/exceptions/words.txt: whoever: 2 uses, of which 0 are allowed",
                "guide/a.md:1: \"whoever\"",
                "guide/a.md:2: \"whoever\"",
            ]
        );
    }

    #[test]
    fn as_many_as_the_list_allows_are_no_finding() {
        assert_eq!(findings("nobody"), Vec::<String>::new());
        assert_eq!(findings("nobody, nobody").len(), 3);
    }

    #[test]
    fn phrases_are_found_over_the_end_of_a_line() {
        assert_eq!(findings("    // has a thread of its\n    // own, and").len(), 2);
        assert_eq!(findings("All but\nfor one").len(), 2);
    }

    #[test]
    fn parts_of_words_and_broken_phrases_are_not_found() {
        assert_eq!(findings("celestial whoevers; but, for one; its owner"), Vec::<String>::new());
    }

    #[test]
    fn texts_elsewhere_are_left_out() {
        let files = Files::from(&[
            ("crates/xtask/exceptions/words.txt", "0 whoever"),
            ("LICENSE-MIT", "whoever"),
        ]);
        assert_eq!(check(&files), []);
    }
}
