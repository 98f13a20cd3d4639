//! One process of the demo, with the reports of all its lives.

use super::report::{Corrupt, Report};
use super::role::Role;
use crate::process::child::Child;

/// A process in a role. It has one life more each time that the supervisor restarts it.
pub(crate) struct DemoProcess {
    pub(crate) role: Role,
    /// `None` while it is killed.
    pub(crate) child: Option<Child<Report>>,
    /// The process id of this life, or of the last one while it is killed.
    pub(crate) pid: u32,
    /// The newest report of this life.
    pub(crate) report: Report,
    /// The last reports of earlier lives.
    pub(crate) earlier: Vec<Report>,
}

impl DemoProcess {
    pub(crate) fn new(role: Role, child: Child<Report>) -> DemoProcess {
        let (pid, child) = (child.pid(), Some(child));
        DemoProcess { role, child, pid, report: Report::default(), earlier: Vec::new() }
    }

    /// Starts the next life.
    pub(crate) fn restart(&mut self, child: Child<Report>) {
        (self.pid, self.child) = (child.pid(), Some(child));
    }

    /// Ends this life. The child must have ended.
    pub(crate) fn end_life(&mut self, child: &Child<Report>) {
        self.update(child.last_reports().last());
        self.earlier.push(std::mem::take(&mut self.report));
    }

    /// Reads the reports that arrived.
    pub(crate) fn read_reports(&mut self) {
        let newest = self.child.as_ref().and_then(|child| child.reports().last());
        self.update(newest);
    }

    /// Replaces the newest report, if there is a newer one.
    pub(crate) fn update(&mut self, newest: Option<Report>) {
        if let Some(newest) = newest {
            self.report = newest;
        }
    }

    /// The sum of a number over all lives.
    pub(crate) fn total(&self, number: impl Fn(&Report) -> u64) -> u64 {
        self.earlier.iter().chain([&self.report]).map(number).sum()
    }

    /// The corrupt messages of all lives.
    pub(crate) fn corrupt(&self) -> Corrupt {
        let all = self.earlier.iter().chain([&self.report]).map(|report| report.corrupt);
        all.fold(Corrupt::default(), |sum, corrupt| sum + corrupt)
    }
}
