//! What came of the demo.

use std::time::Duration;

use serde::Serialize;

use crate::demo::play::Actor;
use crate::demo::report::Corrupt;
use crate::demo::role::Role;
use crate::output::{Page, Report, Table};
use crate::pattern::Size;
use crate::percentile::Percentiles;
use crate::unit;

/// What came of the deaths, as far as the demo came.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Comeback {
    /// How many frames the killed subscriber held, and how long it took until they were seen to be back.
    /// (The camera tells ten times a second.)
    pub(crate) frames_held: Option<usize>,
    pub(crate) frames_back_ms: Option<f64>,
    /// How long it took from the start of the new camera's process until others were seen to receive.
    pub(crate) camera_found_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    seconds: f64,
    size: String,
    processes: Vec<Line>,
    /// Bytes of what was received, by all.
    bytes_moved: u64,
    /// Bytes that were copied on the way.
    bytes_copied: u64,
    bytes_reserved: u64,
    /// Pictures, depth images and clouds together.
    pub(crate) corrupt: u64,
    after_the_kills: Comeback,
}

#[derive(Debug, Serialize)]
struct Line {
    role: Role,
    lives: usize,
    sent: u64,
    received: u64,
    missed: u64,
    corrupt: Corrupt,
    bytes_moved: u64,
    bytes_copied: u64,
    /// Messages a second, over all lives and the time between them.
    hz: f64,
    /// Of the last life.
    latency: Option<Percentiles>,
}

impl Line {
    fn new(actor: &Actor, time: Duration) -> Line {
        let sent = actor.total(|report| report.sent);
        let received = actor.total(|report| report.received);
        Line {
            role: actor.role,
            lives: 1 + actor.before.len(),
            sent,
            received,
            missed: actor.total(|report| report.missed),
            corrupt: actor.corrupt(),
            bytes_moved: actor.total(|report| report.bytes_moved),
            bytes_copied: actor.total(|report| report.bytes_copied),
            hz: sent.max(received) as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE),
            latency: actor.now.latency,
        }
    }
}

impl Summary {
    pub(crate) fn new(
        time: Duration,
        size: Size,
        actors: &[Actor],
        after_the_kills: Comeback,
    ) -> Summary {
        let processes: Vec<Line> = actors.iter().map(|actor| Line::new(actor, time)).collect();
        let sum = |number: fn(&Line) -> u64| processes.iter().map(number).sum();
        Summary {
            seconds: time.as_secs_f64(),
            size: size.to_string(),
            bytes_moved: sum(|line| line.bytes_moved),
            bytes_copied: sum(|line| line.bytes_copied),
            corrupt: sum(|line| line.corrupt.total()),
            bytes_reserved: actors.iter().map(|actor| actor.now.bytes_reserved).sum(),
            processes,
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
        page.table(&self.table(), "nobody was there");
        let (moved, copied) = (unit::bytes(self.bytes_moved), unit::bytes(self.bytes_copied));
        page.line(format!(
            "{moved} moved between processes in {:.1} s, {copied} copied; {} of shared memory in use",
            self.seconds,
            unit::bytes(self.bytes_reserved)
        ));
        let Comeback { frames_held, frames_back_ms, camera_found_ms } = self.after_the_kills;
        if let Some((held, back)) = frames_held.zip(frames_back_ms) {
            page.line(format!(
                "a subscriber was killed: its {held} frames were back within {back:.0} ms"
            ));
        }
        if let Some(found) = camera_found_ms {
            page.line(format!(
                "the camera was killed: its successor was received from {found:.0} ms after its start"
            ));
        }
        match self.corrupt {
            0 => page.good("no frame was corrupt"),
            corrupt => page.bad(&format!("{corrupt} frames were corrupt")),
        }
    }
}
