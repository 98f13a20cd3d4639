//! Rate, bandwidth and latency of a topic, seen from outside.

use std::thread;
use std::time::{Duration, Instant};

use cenote::{Observer, Sighting};
use serde::Serialize;

use crate::clock;
use crate::failure::Outcome;
use crate::percentile::Percentiles;

/// How long to sleep between two looks. A message is seen so much later at most, which is part of its
/// latency as seen from here.
pub(crate) const NAP: Duration = Duration::from_micros(200);

/// Watches one topic.
#[derive(Debug)]
pub(crate) struct Meter {
    observer: Observer,
    missed: u64,
    /// When the last message was seen.
    last: Option<Instant>,
    tally: Tally,
}

/// What was seen since the last reading.
#[derive(Debug)]
struct Tally {
    since: Instant,
    messages: u64,
    bytes: u64,
    ages: Vec<u64>,
    periods: Vec<f64>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            since: Instant::now(),
            messages: 0,
            bytes: 0,
            ages: Vec::new(),
            periods: Vec::new(),
        }
    }
}

/// What was seen over some time.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Reading {
    pub(crate) seconds: f64,
    pub(crate) messages: u64,
    /// Those that were sent, but gone before they were seen.
    pub(crate) missed: u64,
    pub(crate) hz: f64,
    pub(crate) bytes: u64,
    pub(crate) bytes_per_second: f64,
    /// The time between two messages, if there were two.
    pub(crate) period_ms: Option<Period>,
    /// From the stamp of a message until it was seen, if messages have stamps. Exact to 0.2 ms.
    pub(crate) latency: Option<Percentiles>,
}

/// Times between messages.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Period {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

impl Meter {
    pub(crate) fn new(topic: &str) -> Outcome<Meter> {
        let observer = Observer::new(topic)?;
        Ok(Meter { observer, missed: 0, last: None, tally: Tally::default() })
    }

    /// Looks for as long as this, or until `enough` messages were seen.
    pub(crate) fn watch(&mut self, time: Duration, enough: u64) -> Outcome {
        let start = Instant::now();
        while start.elapsed() < time && self.tally.messages < enough {
            self.look()?;
            thread::sleep(NAP.min(time));
        }
        Ok(())
    }

    /// Looks at all that is there.
    pub(crate) fn look(&mut self) -> Outcome {
        while let Some(seen) = self.observer.look()? {
            self.note(&seen);
        }
        Ok(())
    }

    fn note(&mut self, seen: &Sighting) {
        let now = Instant::now();
        self.tally.messages += 1;
        self.tally.bytes += seen.nbytes as u64;
        let stamp = seen.header.map(|header| header.stamp_ns);
        self.tally.ages.extend(stamp.and_then(clock::age_ns));
        let last = self.last.replace(now);
        self.tally.periods.extend(last.map(|last| (now - last).as_secs_f64() * 1000.0));
    }

    /// What was seen since the last reading.
    #[allow(clippy::cast_precision_loss, reason = "rates are shown with three digits")]
    pub(crate) fn read(&mut self) -> Reading {
        let tally = std::mem::take(&mut self.tally);
        let seconds = tally.since.elapsed().as_secs_f64();
        let missed = self.observer.missed() - self.missed;
        self.missed += missed;
        Reading {
            seconds,
            messages: tally.messages,
            missed,
            hz: (tally.messages + missed) as f64 / seconds,
            bytes: tally.bytes,
            bytes_per_second: tally.bytes as f64 / seconds,
            period_ms: Period::of(&tally.periods),
            latency: Percentiles::of(tally.ages),
        }
    }
}

impl Period {
    #[allow(clippy::cast_precision_loss, reason = "there are fewer than 2^52")]
    fn of(periods: &[f64]) -> Option<Period> {
        let count = periods.len() as f64;
        let mean = periods.iter().sum::<f64>() / count;
        let squares = periods.iter().map(|period| (period - mean).powi(2)).sum::<f64>();
        Some(Period {
            min: periods.iter().copied().reduce(f64::min)?,
            max: periods.iter().copied().reduce(f64::max)?,
            mean,
            deviation: (squares / count).sqrt(),
        })
    }
}
