//! What commands say: text for people, in colour on a terminal, or JSON for programs.

mod clean;
mod page;
mod table;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

pub(crate) use clean::clean;
pub(crate) use page::Page;
pub(crate) use table::Table;

use crate::failure::{Failure, Outcome};

/// What is said of a process that does not answer: in a sentence, and in a table.
pub(crate) const NO_ANSWER: &str = "does not answer: it may be stopped";
pub(crate) const NO_ANSWER_CELL: &str = "(no answer)";

/// Something that can be told either way.
pub(crate) trait Report: Serialize {
    /// Tells it to people.
    fn write(&self, page: &mut Page);
}

/// Where a command tells what it found.
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

    /// Whether somebody looks who can see things move.
    pub(crate) fn is_live(&self) -> bool {
        self.terminal && !self.json
    }

    /// Whether it is a terminal which shows lines, and nothing else.
    pub(crate) fn is_dumb(&self) -> bool {
        self.is_live() && is_dumb()
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// For commands that have a form of their own.
    pub(crate) fn refuse_json(&self, what: &str) -> Outcome {
        match self.json {
            true => Err(Failure::Nonsense(format!("{what} is no JSON: leave out --json"))),
            false => Ok(()),
        }
    }

    /// Tells all there is to tell.
    pub(crate) fn report(&self, report: &impl Report) -> Outcome {
        self.tell(report, serde_json::to_string_pretty)
    }

    /// Tells one of many: JSON takes one line.
    pub(crate) fn one_of_many(&self, report: &impl Report) -> Outcome {
        self.tell(report, serde_json::to_string)
    }

    fn tell<R: Report>(
        &self,
        report: &R,
        json: impl Fn(&R) -> serde_json::Result<String>,
    ) -> Outcome {
        if self.json {
            let json = json(report).map_err(Failure::from_text)?;
            return self.line(&clean::spelled_out(&json));
        }
        let mut page = Page::new(self.colour);
        report.write(&mut page);
        self.raw(page.as_str().as_bytes())
    }

    /// A line as it is.
    pub(crate) fn line(&self, line: &str) -> Outcome {
        self.raw(format!("{line}\n").as_bytes())
    }

    /// Bytes as they are.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Outcome {
        let mut out = io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::NobodyReads,
            _ => Failure::Failed(format!("writing the output failed: {error}")),
        })
    }
}

/// Whether the terminal says so of itself.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}
