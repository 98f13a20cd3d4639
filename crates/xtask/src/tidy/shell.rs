//! Shell scripts pass shellcheck.

use crate::command::CommandLine;
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;

pub(super) fn check(files: &Files) -> Vec<Finding> {
    let scripts: Vec<&str> =
        files.iter().filter(|(_, text)| is_shell(text)).map(|(path, _)| path).collect();
    match CommandLine::new("shellcheck").arg("--external-sources").args(scripts).run() {
        Ok(()) => Vec::new(),
        Err(error) => vec![Finding::in_file("scripts", format!("{error}"))],
    }
}

/// Whether a line names bash or sh as the interpreter, or tells shellcheck so.
fn is_shell(text: &str) -> bool {
    text.lines().any(|line| {
        line.starts_with("# shellcheck shell=")
            || line.strip_prefix("#!").is_some_and(|interpreter| {
                let name = interpreter.rsplit(['/', ' ']).next().unwrap_or_default();
                interpreter.trim_start().starts_with('/') && ["sh", "bash"].contains(&name)
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_known_by_their_first_line() {
        assert!(is_shell("#!/usr/bin/env bash\n"));
        assert!(is_shell("#! /bin/sh\n"));
        assert!(is_shell("# shellcheck shell=bash\n"));
        assert!(!is_shell("#!/usr/bin/env python3\n"));
        assert!(!is_shell("run `bash`\n"));
    }
}
