//! One thing that a check found.

use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    /// Relative to the root of the checkout.
    file: String,
    line: Option<usize>,
    message: String,
}

impl Finding {
    pub(crate) fn in_file(file: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding { file: file.into(), line: None, message: message.into() }
    }

    /// `line` counts from 1.
    pub(crate) fn at(file: impl Into<String>, line: usize, message: impl Into<String>) -> Finding {
        Finding { file: file.into(), line: Some(line), message: message.into() }
    }
}

/// `file:line: message`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.message)
    }
}

/// For unit tests: the findings as they are printed.
#[cfg(test)]
pub(crate) fn texts(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}
