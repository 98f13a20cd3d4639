//! Processes that this program starts to try something out: itself, in roles, in a namespace of their own.
//!
//! A child reports by lines of JSON on its output, and ends when its input does: so when this program is
//! killed, they end, too.

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
use crate::interrupt::Interrupt;
use crate::namespace::Namespace;

/// How long a child may take to end when it is asked to.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether a child has ended.
const LOOK: Duration = Duration::from_millis(2);

/// A child that reports what it does, as `R`.
#[derive(Debug)]
pub(crate) struct Child<R> {
    process: process::Child,
    /// It ends when this does.
    input: Option<ChildStdin>,
    reports: Receiver<R>,
    /// What it says if something is wrong.
    complaint: Option<JoinHandle<String>>,
}

impl<R: DeserializeOwned + Send + 'static> Child<R> {
    /// Starts this very program with these arguments.
    pub(crate) fn start(namespace: &Namespace, args: &[String]) -> Outcome<Child<R>> {
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
                // Nobody listens any more, or it is no report.
                if !matches!(report, Ok(Ok(()))) {
                    break;
                }
            }
        });
        let errors = process.stderr.take();
        let complaint = thread::spawn(move || {
            errors.and_then(|errors| io::read_to_string(errors).ok()).unwrap_or_default()
        });
        let input = process.stdin.take();
        Ok(Child { process, input, reports, complaint: Some(complaint) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The reports that came since the last time.
    pub(crate) fn reports(&self) -> impl Iterator<Item = R> {
        self.reports.try_iter()
    }

    /// The reports that came since the last time, of a child that has ended.
    pub(crate) fn last_reports(&self) -> impl Iterator<Item = R> {
        self.reports.iter()
    }

    /// Ends it at once, as SIGKILL does.
    pub(crate) fn kill(&mut self) -> Outcome {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// An error if it ended by itself.
    pub(crate) fn check(&mut self) -> Outcome {
        match self.process.try_wait()? {
            Some(_) => Err(self.failure()),
            None => Ok(()),
        }
    }

    /// Asks it to end.
    pub(crate) fn dismiss(&mut self) {
        drop(self.input.take());
    }

    /// Whether it has ended, as it should. Its last reports are left to be read.
    pub(crate) fn has_ended(&mut self) -> Outcome<bool> {
        match self.process.try_wait()? {
            Some(status) if status.success() => Ok(true),
            Some(_) => Err(self.failure()),
            None => Ok(false),
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, interrupt: &Interrupt) -> Outcome {
        while !self.has_ended()? {
            interrupt.check()?;
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn finish(&mut self) -> Outcome {
        self.dismiss();
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.has_ended()? {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        Err(self.stays())
    }

    pub(crate) fn stays(&self) -> Failure {
        Failure::Failed(format!("process {} did not end when asked to", self.pid()))
    }

    /// It has ended.
    fn failure(&mut self) -> Failure {
        let said = self.complaint.take().and_then(|complaint| complaint.join().ok());
        let said = said.unwrap_or_default();
        Failure::Failed(format!("process {} ended: {}", self.pid(), said.trim()))
    }
}

impl<R> Drop for Child<R> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In a child: whether it is to go on.
#[derive(Debug, Clone)]
pub(crate) struct Parent(Arc<AtomicBool>);

impl Parent {
    /// Listens for the end of the input.
    pub(crate) fn listen() -> Parent {
        let parent = Parent(Arc::new(AtomicBool::new(true)));
        let wants = parent.clone();
        thread::spawn(move || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            wants.0.store(false, Ordering::Relaxed);
        });
        parent
    }

    pub(crate) fn wants_more(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Tells it something.
    pub(crate) fn tell(&self, report: &impl Serialize) -> Outcome {
        let line = serde_json::to_string(report).map_err(Failure::from_text)?;
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    }
}
