//! A page of text, in colour if it goes to a terminal.

use std::fmt::Display;

use crate::output::Table;
use crate::sanitize::sanitize;

/// Text for people, without control characters in any of its lines.
#[derive(Debug)]
pub(crate) struct Page {
    text: String,
    colour: bool,
}

/// The meaning of a line, which decides its colour.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tone {
    Heading,
    Good,
    Warning,
    Bad,
    Aside,
}

impl Tone {
    /// The parameter of "select graphic rendition" (ECMA-48).
    fn code(self) -> &'static str {
        match self {
            Tone::Heading => "1",
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "31",
            Tone::Aside => "2",
        }
    }
}

impl Page {
    pub(crate) fn new(colour: bool) -> Page {
        Page { text: String::new(), colour }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn line(&mut self, line: impl Display) {
        self.push(&sanitize(&line.to_string()));
    }

    pub(crate) fn heading(&mut self, heading: &str) {
        self.toned(Tone::Heading, heading);
    }

    pub(crate) fn good(&mut self, text: &str) {
        self.toned(Tone::Good, text);
    }

    pub(crate) fn warning(&mut self, text: &str) {
        self.toned(Tone::Warning, text);
    }

    pub(crate) fn bad(&mut self, text: &str) {
        self.toned(Tone::Bad, text);
    }

    pub(crate) fn aside(&mut self, text: &str) {
        self.toned(Tone::Aside, text);
    }

    /// Adds a table, or the text `empty` if the table has no rows.
    pub(crate) fn table(&mut self, table: &Table, empty: &str) {
        if table.is_empty() {
            return self.aside(empty);
        }
        let mut lines = table.lines();
        if let Some(heads) = lines.next() {
            self.heading(&heads);
        }
        lines.for_each(|line| self.line(line));
    }

    fn toned(&mut self, tone: Tone, text: &str) {
        let text = sanitize(text);
        match self.colour {
            true => self.push(&format!("\x1b[{}m{text}\x1b[0m", tone.code())),
            false => self.push(&text),
        }
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_colours_only_if_they_are_on() {
        let (mut plain, mut coloured) = (Page::new(false), Page::new(true));
        plain.bad("no");
        coloured.bad("no");
        assert_eq!((plain.as_str(), coloured.as_str()), ("no\n", "\x1b[31mno\x1b[0m\n"));
    }

    #[test]
    fn no_line_contains_control_characters() {
        let (mut page, text) = (Page::new(false), "\x1b[2J\n\x07\u{9b}2J");
        page.line(text);
        [Page::heading, Page::good, Page::warning, Page::bad, Page::aside]
            .iter()
            .for_each(|add| add(&mut page, text));
        let mut table = Table::new(&["NAME"]);
        table.row([text.to_owned()]);
        page.table(&table, text);
        page.table(&Table::new(&["NAME"]), text);
        assert_eq!(page.as_str().lines().count(), 6 + 2 + 1);
        assert!(page.as_str().chars().all(|c| c == '\n' || !c.is_control()), "{page:?}");
    }
}
