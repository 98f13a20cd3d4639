//! Standard output: text for people, in colour on a terminal, or JSON for programs.

mod page;
pub(crate) mod screen;
mod table;
pub(crate) mod unit;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

pub(crate) use page::Page;
pub(crate) use table::Table;

use crate::failure::{Failure, Outcome};
use crate::sanitize;

/// Describes a process that does not reply: in a sentence, and in a table cell.
pub(crate) const NO_ANSWER: &str = "does not answer: it may be stopped";
pub(crate) const NO_ANSWER_CELL: &str = "(no answer)";

/// A result that can be printed as JSON or as text.
pub(crate) trait Report: Serialize {
    /// Writes the text form.
    fn write(&self, page: &mut Page);
}

/// How a command prints its results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    terminal: bool,
    colour: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = io::stdout().is_terminal();
        Output { json, terminal, colour: terminal && !plain && !is_dumb() }
    }

    /// Whether text goes to a terminal, which can show a live view.
    pub(crate) fn is_live(&self) -> bool {
        self.terminal && !self.json
    }

    /// Whether text goes to a terminal that can only print lines.
    pub(crate) fn is_dumb(&self) -> bool {
        self.is_live() && is_dumb()
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns an error if `--json` is given. For commands whose output has a format already.
    pub(crate) fn refuse_json(&self, what: &str) -> Outcome {
        match self.json {
            true => Err(Failure::Invalid(format!("{what} is not JSON: leave out --json"))),
            false => Ok(()),
        }
    }

    /// Prints the only result of a command. JSON is indented.
    pub(crate) fn report(&self, report: &impl Report) -> Outcome {
        self.print(report, serde_json::to_string_pretty)
    }

    /// Prints one of many results. JSON takes one line.
    pub(crate) fn report_line(&self, report: &impl Report) -> Outcome {
        self.print(report, serde_json::to_string)
    }

    fn print<R: Report>(
        &self,
        report: &R,
        json: impl Fn(&R) -> serde_json::Result<String>,
    ) -> Outcome {
        if self.json {
            let json = json(report).map_err(Failure::from_text)?;
            return self.line(&sanitize::escape_json(&json));
        }
        let mut page = Page::new(self.colour);
        report.write(&mut page);
        self.raw(page.as_str().as_bytes())
    }

    /// Prints a line unchanged.
    pub(crate) fn line(&self, line: &str) -> Outcome {
        self.raw(format!("{line}\n").as_bytes())
    }

    /// Prints bytes unchanged.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Outcome {
        let mut out = io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Failed(format!("writing the output failed: {error}")),
        })
    }
}

/// Whether `TERM` names a terminal without cursor movement or colours.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}
