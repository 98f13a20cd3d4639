//! A command line: a program, its arguments and its environment.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::failure::Failure;

/// Kept as text, so that a log can show it and a test can compare it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CommandLine {
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl CommandLine {
    pub(crate) fn new(program: impl AsRef<Path>) -> CommandLine {
        let program = program.as_ref().display().to_string();
        CommandLine { program, args: Vec::new(), env: Vec::new() }
    }

    pub(crate) fn arg(mut self, arg: impl Into<String>) -> CommandLine {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn args<S: Into<String>>(
        mut self,
        args: impl IntoIterator<Item = S>,
    ) -> CommandLine {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> CommandLine {
        self.env.push((name.to_string(), value.into()));
        self
    }

    /// Puts this command behind another one, which starts it: `prefix program args`.
    pub(crate) fn behind(mut self, prefix: CommandLine) -> CommandLine {
        let mut args = prefix.args;
        args.push(self.program);
        args.append(&mut self.args);
        let env = [prefix.env, self.env].concat();
        CommandLine { program: prefix.program, args, env }
    }

    /// For builds that no developer continues to work with: enough debug information for a
    /// backtrace, and quicker to make.
    pub(crate) fn lean_build(self) -> CommandLine {
        LEAN_BUILD.iter().fold(self, |command, (name, value)| command.env(name, *value))
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Prints the command, runs it and waits. Fails unless it ends with exit code 0.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        println!("$ {self}");
        let status = self.command().status().map_err(|error| self.not_started(&error))?;
        self.check(status)
    }

    /// Whether it ends with exit code 0. Its output is dropped.
    pub(crate) fn succeeds(&self) -> bool {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// What it prints to stdout; stderr goes where ours goes. Fails unless it ends with exit code 0.
    pub(crate) fn output(&self) -> Result<String, Failure> {
        let mut command = self.command();
        command.stderr(Stdio::inherit());
        let output = command.output().map_err(|error| self.not_started(&error))?;
        self.check(output.status)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Prints and runs it as `run` does, and also returns what it wrote to stdout, even if it failed.
    pub(crate) fn run_and_record(&self) -> (String, Result<(), Failure>) {
        println!("$ {self}");
        let mut record = String::new();
        let result = self.record_into(&mut record);
        (record, result)
    }

    fn record_into(&self, record: &mut String) -> Result<(), Failure> {
        let mut command = self.command();
        let mut child =
            command.stdout(Stdio::piped()).spawn().map_err(|error| self.not_started(&error))?;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).split(b'\n') {
                let line = line?;
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                record.push_str(&line);
                record.push('\n');
            }
        }
        self.check(child.wait()?)
    }

    pub(crate) fn check(&self, status: ExitStatus) -> Result<(), Failure> {
        if status.success() {
            return Ok(());
        }
        // Not with its environment, which can be long: the log has it above.
        Err(Failure::new(format!("`{}`: {status}", self.words().join(" "))))
    }

    pub(crate) fn not_started(&self, error: &std::io::Error) -> Failure {
        Failure::new(format!("cannot start `{}`: {error}", self.program))
    }

    fn words(&self) -> Vec<String> {
        std::iter::once(&self.program).chain(&self.args).map(|word| quoted(word)).collect()
    }
}

/// `cargo` with arguments separated by spaces, for command lines that have no spaces within one.
pub(crate) fn cargo(arguments: &str) -> CommandLine {
    CommandLine::new("cargo").args(arguments.split_whitespace())
}

/// As it would be typed into a shell.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&self.words().join(" "))
    }
}

pub(crate) const LEAN_BUILD: [(&str, &str); 2] =
    [("CARGO_PROFILE_DEV_DEBUG", "line-tables-only"), ("CARGO_INCREMENTAL", "0")];

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_a_shell_would_read_it() {
        let command = cargo("test --lib").arg("it's").env("RUSTFLAGS", "--cfg loom");
        assert_eq!(command.to_string(), r"RUSTFLAGS='--cfg loom' cargo test --lib 'it'\''s'");
    }

    #[test]
    fn a_prefix_starts_the_command() {
        let prefix = CommandLine::new("env").arg("-i").env("A", "1");
        let command = cargo("check").env("B", "2").behind(prefix);
        assert_eq!(command.to_string(), "A=1 B=2 env -i cargo check");
    }

    #[test]
    fn a_failure_names_the_command_and_its_exit_code() {
        let error = CommandLine::new("sh").args(["-c", "exit 3"]).run().unwrap_err();
        assert_eq!(error.to_string(), "`sh -c 'exit 3'`: exit status: 3");
        let error = CommandLine::new("/no/such/program").run().unwrap_err().to_string();
        assert!(error.starts_with("cannot start `/no/such/program`"), "{error}");
    }

    #[test]
    fn a_record_has_what_was_printed_before_the_failure() {
        let (record, result) =
            CommandLine::new("sh").args(["-c", "echo one; echo two; exit 1"]).run_and_record();
        assert_eq!(record, "one\ntwo\n");
        assert!(result.is_err());
    }
}
