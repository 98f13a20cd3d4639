//! What a process of the demo tells the director, ten times a second.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cenote::copies;
use serde::{Deserialize, Serialize};

use crate::children::Parent;
use crate::clock;
use crate::failure::Outcome;
use crate::percentile::Percentiles;

/// How often.
const INTERVAL: Duration = Duration::from_millis(100);

/// Of how many messages the latency is told: the last minute at 60 Hz.
const WINDOW: usize = 3600;

/// What a process has done since it began.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) missed: u64,
    /// Of which a byte was wrong.
    pub(crate) corrupt: Corrupt,
    /// Bytes of what was received.
    pub(crate) bytes_moved: u64,
    /// Bytes of tensors that were copied, for whatever reason.
    pub(crate) bytes_copied: u64,
    /// Messages a second of late: sent, or else received.
    pub(crate) hz: f64,
    /// From sending to receiving, of the last messages.
    pub(crate) latency: Option<Percentiles>,
    /// What others hold of the camera's frames.
    pub(crate) leases: Vec<Lease>,
    /// What the camera's pools have reserved.
    pub(crate) bytes_reserved: u64,
    /// What it found in the picture.
    pub(crate) brightness: Option<f64>,
}

/// What was wrong, by kind.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Corrupt {
    pub(crate) rgb: u64,
    pub(crate) depth: u64,
    pub(crate) cloud: u64,
}

impl Corrupt {
    pub(crate) fn total(self) -> u64 {
        self.rgb + self.depth + self.cloud
    }
}

impl std::ops::Add for Corrupt {
    type Output = Corrupt;

    fn add(self, other: Corrupt) -> Corrupt {
        let (rgb, depth) = (self.rgb + other.rgb, self.depth + other.depth);
        Corrupt { rgb, depth, cloud: self.cloud + other.cloud }
    }
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
    /// Of the last messages.
    latencies: VecDeque<u64>,
    last: Instant,
    count_then: u64,
}

impl Reporter {
    pub(crate) fn new() -> Reporter {
        Reporter {
            report: Report::default(),
            latencies: VecDeque::new(),
            last: Instant::now(),
            count_then: 0,
        }
    }

    /// Something came that was sent at `stamp_ns`.
    pub(crate) fn received(&mut self, stamp_ns: u64, bytes: usize) {
        self.report.received += 1;
        self.report.bytes_moved += bytes as u64;
        self.latencies.push_back(clock::now_ns().saturating_sub(stamp_ns));
        self.latencies.drain(..self.latencies.len().saturating_sub(WINDOW));
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
        self.report.latency = Percentiles::of(self.latencies.iter().copied().collect());
        parent.tell(&self.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_that_of_the_last_messages() {
        let mut reporter = Reporter::new();
        let now = clock::now_ns();
        reporter.received(now - 3_600_000_000_000, 1);
        assert_eq!(reporter.latencies.len(), 1);
        (0..WINDOW).for_each(|_| reporter.received(clock::now_ns(), 1));
        assert_eq!(reporter.latencies.len(), WINDOW);
        assert!(reporter.latencies.iter().all(|nanos| *nanos < 3_600_000_000_000), "an hour ago");
        assert_eq!(reporter.report.received, WINDOW as u64 + 1);
    }
}
