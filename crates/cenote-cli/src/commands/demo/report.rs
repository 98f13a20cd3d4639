//! The report that a process of the demo sends to the supervisor ten times a second.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cenote::copies;
use serde::{Deserialize, Serialize};

use crate::failure::Outcome;
use crate::measure::clock;
use crate::measure::percentiles::Percentiles;
use crate::process::child::Parent;

/// The time between two reports.
const INTERVAL: Duration = Duration::from_millis(100);

/// How many of the newest messages the latency covers: the last minute at 60 Hz.
const LATENCY_WINDOW: usize = 3600;

/// What a process has done since its start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) missed: u64,
    /// Received messages with a wrong byte.
    pub(crate) corrupt: Corrupt,
    /// The bytes of the received messages.
    pub(crate) bytes_moved: u64,
    /// The tensor bytes that this process copied, for any reason.
    pub(crate) bytes_copied: u64,
    /// The recent rate of sent messages, or of received ones if that is more.
    pub(crate) hz: f64,
    /// The time from sending to receiving, for the newest messages.
    pub(crate) latency: Option<Percentiles>,
    /// The leases of other processes on the camera's images.
    pub(crate) leases: Vec<Lease>,
    /// The reserved bytes of the camera's pools.
    pub(crate) bytes_reserved: u64,
    /// The mean brightness of the last image.
    pub(crate) brightness: Option<f64>,
}

/// The number of corrupt messages, by type.
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

/// The number of frames that a process holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) pid: i32,
    pub(crate) slots: usize,
}

/// Collects the report of a process, and sends it at intervals.
#[derive(Debug)]
pub(crate) struct Reporter {
    pub(crate) report: Report,
    /// The latencies of the newest messages, in nanoseconds.
    latencies: VecDeque<u64>,
    last_sent: Instant,
    last_count: u64,
}

impl Reporter {
    pub(crate) fn new() -> Reporter {
        Reporter {
            report: Report::default(),
            latencies: VecDeque::new(),
            last_sent: Instant::now(),
            last_count: 0,
        }
    }

    /// Records a received message that was sent at `stamp_ns`.
    pub(crate) fn received(&mut self, stamp_ns: u64, bytes: usize) {
        self.report.received += 1;
        self.report.bytes_moved += bytes as u64;
        self.latencies.push_back(clock::now_ns().saturating_sub(stamp_ns));
        self.latencies.drain(..self.latencies.len().saturating_sub(LATENCY_WINDOW));
    }

    /// Whether it is time for a report.
    pub(crate) fn is_due(&self) -> bool {
        self.last_sent.elapsed() >= INTERVAL
    }

    /// Sends the report if it is time.
    pub(crate) fn send_if_due(&mut self, parent: &Parent) -> Outcome {
        if self.is_due() { self.send(parent) } else { Ok(()) }
    }

    /// Sends the report.
    #[allow(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
    pub(crate) fn send(&mut self, parent: &Parent) -> Outcome {
        let count = self.report.sent.max(self.report.received);
        let now = (count - self.last_count) as f64 / self.last_sent.elapsed().as_secs_f64();
        // Smoothed, because intervals are short.
        self.report.hz = if self.last_count == 0 { now } else { 0.7 * self.report.hz + 0.3 * now };
        (self.last_count, self.last_sent) = (count, Instant::now());
        self.report.bytes_copied = copies().iter().map(|copies| copies.bytes).sum();
        self.report.latency = Percentiles::of(self.latencies.iter().copied().collect());
        parent.send(&self.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_covers_only_the_newest_messages() {
        let mut reporter = Reporter::new();
        let now = clock::now_ns();
        reporter.received(now - 3_600_000_000_000, 1);
        assert_eq!(reporter.latencies.len(), 1);
        (0..LATENCY_WINDOW).for_each(|_| reporter.received(clock::now_ns(), 1));
        assert_eq!(reporter.latencies.len(), LATENCY_WINDOW);
        assert!(
            reporter.latencies.iter().all(|nanos| *nanos < 3_600_000_000_000),
            "the message of an hour ago is left out"
        );
        assert_eq!(reporter.report.received, LATENCY_WINDOW as u64 + 1);
    }
}
