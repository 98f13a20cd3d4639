//! The summary of the demo.

use std::time::Duration;

use serde::Serialize;

use crate::commands::demo::process::DemoProcess;
use crate::commands::demo::report::Corrupt;
use crate::commands::demo::role::Role;
use crate::measure::percentiles::Percentiles;
use crate::output::unit;
use crate::output::{Page, Report, Table};
use crate::test_pattern::Size;

/// How the demo recovered from the kills; `None` for a kill that it did not reach.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Recovery {
    /// The frames that the killed subscriber held.
    pub(crate) frames_held: Option<usize>,
    /// The time until the camera reported that it has reclaimed them. It reports ten times a second.
    pub(crate) frames_back_ms: Option<f64>,
    /// The time from the start of the new camera until a subscriber reported a message from it.
    pub(crate) camera_found_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    seconds: f64,
    size: String,
    processes: Vec<ProcessLine>,
    /// The bytes of all received messages.
    bytes_moved: u64,
    /// The tensor bytes that the processes copied.
    bytes_copied: u64,
    bytes_reserved: u64,
    /// Corrupt images, depth images and clouds.
    pub(crate) corrupt: u64,
    after_the_kills: Recovery,
}

#[derive(Debug, Serialize)]
struct ProcessLine {
    role: Role,
    lives: usize,
    sent: u64,
    received: u64,
    missed: u64,
    corrupt: Corrupt,
    bytes_moved: u64,
    bytes_copied: u64,
    /// Messages per second, over all lives and the time between them.
    hz: f64,
    /// The latency of the last life.
    latency: Option<Percentiles>,
}

impl ProcessLine {
    fn new(process: &DemoProcess, time: Duration) -> ProcessLine {
        let sent = process.total(|report| report.sent);
        let received = process.total(|report| report.received);
        ProcessLine {
            role: process.role,
            lives: 1 + process.earlier.len(),
            sent,
            received,
            missed: process.total(|report| report.missed),
            corrupt: process.corrupt(),
            bytes_moved: process.total(|report| report.bytes_moved),
            bytes_copied: process.total(|report| report.bytes_copied),
            hz: sent.max(received) as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE),
            latency: process.report.latency,
        }
    }
}

impl Summary {
    pub(crate) fn new(
        time: Duration,
        size: Size,
        processes: &[DemoProcess],
        after_the_kills: Recovery,
    ) -> Summary {
        let lines: Vec<ProcessLine> =
            processes.iter().map(|process| ProcessLine::new(process, time)).collect();
        let sum = |number: fn(&ProcessLine) -> u64| lines.iter().map(number).sum();
        Summary {
            seconds: time.as_secs_f64(),
            size: size.to_string(),
            bytes_moved: sum(|line| line.bytes_moved),
            bytes_copied: sum(|line| line.bytes_copied),
            corrupt: sum(|line| line.corrupt.total()),
            bytes_reserved: processes.iter().map(|process| process.report.bytes_reserved).sum(),
            processes: lines,
            after_the_kills,
        }
    }

    fn table(&self) -> Table {
        let heads = [
            "PROCESS",
            ">LIVES",
            ">SENT",
            ">RECEIVED",
            ">MISSED",
            ">RATE",
            ">LATENCY p50 / p99",
            ">MOVED",
            ">COPIED",
        ];
        let mut table = Table::new(&heads);
        for line in &self.processes {
            table.row([
                line.role.to_string(),
                line.lives.to_string(),
                line.sent.to_string(),
                line.received.to_string(),
                line.missed.to_string(),
                unit::rate(line.hz),
                Percentiles::show(line.latency.as_ref()),
                unit::bytes(line.bytes_moved),
                unit::bytes(line.bytes_copied),
            ]);
        }
        table
    }
}

impl Report for Summary {
    fn write(&self, page: &mut Page) {
        page.table(&self.table(), "no processes");
        let (moved, copied) = (unit::bytes(self.bytes_moved), unit::bytes(self.bytes_copied));
        page.line(format!(
            "{moved} moved between processes in {:.1} s, {copied} copied; {} of shared memory reserved",
            self.seconds,
            unit::bytes(self.bytes_reserved)
        ));
        let Recovery { frames_held, frames_back_ms, camera_found_ms } = self.after_the_kills;
        if let Some((held, time)) = frames_held.zip(frames_back_ms) {
            page.line(format!(
                "killed a subscriber: the camera reclaimed its {held} frames within {time:.0} ms"
            ));
        }
        if let Some(found) = camera_found_ms {
            page.line(format!(
                "killed the camera: subscribers received from the new one {found:.0} ms after its start"
            ));
        }
        match self.corrupt {
            0 => page.good("no frame was corrupt"),
            corrupt => page.bad(&format!("{corrupt} frames were corrupt")),
        }
    }
}
