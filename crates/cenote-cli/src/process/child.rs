//! Child processes of the demo and the benchmark: this program itself, started in a role, in a temporary
//! namespace.
//!
//! A child reports by lines of JSON on its standard output. It ends when its standard input is closed, so it ends
//! even if this program is killed.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cenote::NAMESPACE_ENV;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Outcome};
use crate::process::interrupt::Interrupt;
use crate::process::temporary_namespace::TemporaryNamespace;

/// How long a child may take to end after its input is closed.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which this program checks whether a child has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A child process that reports its progress as `R`. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Child<R> {
    process: process::Child,
    /// The child ends when this is closed.
    input: Option<ChildStdin>,
    reports: Receiver<R>,
    /// Reads the child's standard error to its end.
    stderr: Option<JoinHandle<String>>,
}

impl<R: DeserializeOwned + Send + 'static> Child<R> {
    /// Starts this program with other arguments.
    pub(crate) fn start(namespace: &TemporaryNamespace, args: &[String]) -> Outcome<Child<R>> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(args)
            .env(NAMESPACE_ENV, &namespace.name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (sender, reports) = channel();
        let output = process.stdout.take().map(BufReader::new);
        thread::spawn(move || {
            for line in output.into_iter().flat_map(|output| output.lines().map_while(Result::ok)) {
                let report = serde_json::from_str(&line).map(|report| sender.send(report));
                // The receiver was dropped, or the line is not a report.
                if !matches!(report, Ok(Ok(()))) {
                    break;
                }
            }
        });
        let errors = process.stderr.take();
        let stderr = thread::spawn(move || {
            errors.and_then(|errors| io::read_to_string(errors).ok()).unwrap_or_default()
        });
        let input = process.stdin.take();
        Ok(Child { process, input, reports, stderr: Some(stderr) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The reports that arrived since the last call.
    pub(crate) fn reports(&self) -> impl Iterator<Item = R> {
        self.reports.try_iter()
    }

    /// The reports that arrived since the last call, up to the last one. Blocks until the child has ended.
    pub(crate) fn last_reports(&self) -> impl Iterator<Item = R> {
        self.reports.iter()
    }

    /// Ends the child with SIGKILL.
    pub(crate) fn kill(&mut self) -> Outcome {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Returns an error if the child has ended.
    pub(crate) fn check(&mut self) -> Outcome {
        match self.process.try_wait()? {
            Some(_) => Err(self.failure()),
            None => Ok(()),
        }
    }

    /// Closes the input of the child, which makes it end.
    pub(crate) fn close_input(&mut self) {
        drop(self.input.take());
    }

    /// Whether the child has ended successfully. Its last reports can still be read. Returns an error if the child
    /// failed.
    pub(crate) fn has_ended(&mut self) -> Outcome<bool> {
        match self.process.try_wait()? {
            Some(status) if status.success() => Ok(true),
            Some(_) => Err(self.failure()),
            None => Ok(false),
        }
    }

    /// Waits until the child ends. Returns an error if it fails, or if a signal interrupts this program.
    pub(crate) fn wait(&mut self, interrupt: &Interrupt) -> Outcome {
        while !self.has_ended()? {
            interrupt.check()?;
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Makes the child end, and waits for that. Returns an error if the child fails or takes too long.
    pub(crate) fn finish(&mut self) -> Outcome {
        self.close_input();
        let start = Instant::now();
        while start.elapsed() < END_TIMEOUT {
            if self.has_ended()? {
                return Ok(());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Err(self.did_not_end())
    }

    pub(crate) fn did_not_end(&self) -> Failure {
        Failure::Failed(format!(
            "process {} did not end within {} s",
            self.pid(),
            END_TIMEOUT.as_secs()
        ))
    }

    /// The failure of a child that has ended unexpectedly, with its text on standard error.
    fn failure(&mut self) -> Failure {
        let text = self.stderr.take().and_then(|stderr| stderr.join().ok());
        let text = text.unwrap_or_default();
        Failure::Failed(format!("process {} ended: {}", self.pid(), text.trim()))
    }
}

impl<R> Drop for Child<R> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In a child: the connection to the parent process.
#[derive(Debug, Clone)]
pub(crate) struct Parent(Arc<AtomicBool>);

impl Parent {
    /// Starts a thread that waits until standard input is closed.
    pub(crate) fn connect() -> Parent {
        let parent = Parent(Arc::new(AtomicBool::new(true)));
        let open = parent.clone();
        thread::spawn(move || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            open.0.store(false, Ordering::Relaxed);
        });
        parent
    }

    /// Whether the parent has not closed this process's input.
    pub(crate) fn is_connected(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sends a report to the parent.
    pub(crate) fn send(&self, report: &impl Serialize) -> Outcome {
        let line = serde_json::to_string(report).map_err(Failure::from_text)?;
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    }
}
