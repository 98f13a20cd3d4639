//! What a process of the demo tells the director, ten times a second.

use std::time::{Duration, Instant};

use cenote::copies;
use serde::{Deserialize, Serialize};

use crate::children::Parent;
use crate::clock;
use crate::failure::Outcome;
use crate::percentile::Percentiles;

/// How often.
const INTERVAL: Duration = Duration::from_millis(100);

/// What a process has done since it began.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) missed: u64,
    /// Pictures of which a byte was wrong.
    pub(crate) corrupt: u64,
    /// Bytes of what was received.
    pub(crate) bytes_moved: u64,
    /// Bytes of tensors that were copied, for whatever reason.
    pub(crate) bytes_copied: u64,
    /// Messages a second of late: sent, or else received.
    pub(crate) hz: f64,
    /// From sending to receiving.
    pub(crate) latency: Option<Percentiles>,
    /// What others hold of the camera's frames.
    pub(crate) leases: Vec<Lease>,
    /// What the camera's pools have reserved.
    pub(crate) bytes_reserved: u64,
    /// What it found in the picture.
    pub(crate) brightness: Option<f64>,
}

/// Frames that a process holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) pid: i32,
    pub(crate) slots: usize,
}

/// Keeps the report of a process, and sends it when it is due.
#[derive(Debug)]
pub(crate) struct Reporter {
    pub(crate) report: Report,
    latencies: Vec<u64>,
    last: Instant,
    count_then: u64,
}

impl Reporter {
    pub(crate) fn new() -> Reporter {
        Reporter {
            report: Report::default(),
            latencies: Vec::new(),
            last: Instant::now(),
            count_then: 0,
        }
    }

    /// Something came that was sent at `stamp_ns`.
    pub(crate) fn received(&mut self, stamp_ns: u64, bytes: usize) {
        self.report.received += 1;
        self.report.bytes_moved += bytes as u64;
        self.latencies.push(clock::now_ns().saturating_sub(stamp_ns));
    }

    /// Whether it is time to report.
    pub(crate) fn is_due(&self) -> bool {
        self.last.elapsed() >= INTERVAL
    }

    /// Reports if it is time to.
    pub(crate) fn tell_if_due(&mut self, parent: &Parent) -> Outcome {
        if self.is_due() { self.tell(parent) } else { Ok(()) }
    }

    /// Reports.
    #[allow(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
    pub(crate) fn tell(&mut self, parent: &Parent) -> Outcome {
        let count = self.report.sent.max(self.report.received);
        let now = (count - self.count_then) as f64 / self.last.elapsed().as_secs_f64();
        // A little of what it was before, for intervals are short.
        self.report.hz = if self.count_then == 0 { now } else { 0.7 * self.report.hz + 0.3 * now };
        (self.count_then, self.last) = (count, Instant::now());
        self.report.bytes_copied = copies().iter().map(|copies| copies.bytes).sum();
        self.report.latency = Percentiles::of(self.latencies.clone());
        parent.tell(&self.report)
    }
}
