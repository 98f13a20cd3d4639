//! Text that is being written, with colours if there is a terminal for them.

use std::fmt::Display;

use crate::output::Table;

/// Text for people.
#[derive(Debug)]
pub(crate) struct Page {
    text: String,
    colour: bool,
}

/// How something is meant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tone {
    Heading,
    Good,
    Warning,
    Bad,
    Aside,
}

impl Tone {
    /// The parameters of "select graphic rendition" (ECMA-48).
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
        self.text.push_str(&format!("{line}\n"));
    }

    pub(crate) fn heading(&mut self, heading: &str) {
        let heading = self.toned(Tone::Heading, heading);
        self.line(heading);
    }

    pub(crate) fn good(&mut self, text: &str) {
        let text = self.toned(Tone::Good, text);
        self.line(text);
    }

    pub(crate) fn warning(&mut self, text: &str) {
        let text = self.toned(Tone::Warning, text);
        self.line(text);
    }

    pub(crate) fn bad(&mut self, text: &str) {
        let text = self.toned(Tone::Bad, text);
        self.line(text);
    }

    pub(crate) fn aside(&mut self, text: &str) {
        let text = self.toned(Tone::Aside, text);
        self.line(text);
    }

    /// A table; `empty` is said if it has no rows.
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

    fn toned(&self, tone: Tone, text: &str) -> String {
        match self.colour {
            true => format!("\x1b[{}m{text}\x1b[0m", tone.code()),
            false => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals() {
        let (mut plain, mut coloured) = (Page::new(false), Page::new(true));
        plain.bad("no");
        coloured.bad("no");
        assert_eq!((plain.as_str(), coloured.as_str()), ("no\n", "\x1b[31mno\x1b[0m\n"));
    }
}
