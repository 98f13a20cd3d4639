//! Rate, bandwidth and latency of a topic, measured by an observer.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use cenote::{Error, Observer, Sighting};
use serde::Serialize;

use crate::failure::Outcome;
use crate::measure::clock;
use crate::measure::percentiles::Percentiles;

/// The time between two polls of the ring. The measured latency of a message includes up to that much.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The most messages that one poll of a topic reads, so that a fast publisher does not delay other topics.
const MAX_PER_POLL: usize = 1024;

/// The most latencies that a reading keeps: the newest.
const MAX_LATENCIES: usize = 65_536;

/// Measures one topic.
#[derive(Debug)]
pub(crate) struct Meter {
    observer: Observer,
    missed: u64,
    /// When the last message was read.
    last: Option<Instant>,
    /// The ring was not polled for a while. Messages that wait in it are older than the poll interval explains.
    stalled: bool,
    tally: Tally,
}

/// Reads messages until there is none left, which returns true, or [`MAX_PER_POLL`] were read. Invalid messages
/// count.
fn read_batch<T>(
    mut next: impl FnMut() -> Result<Option<T>, Error>,
    mut handle: impl FnMut(Result<T, Error>),
) -> bool {
    for _ in 0..MAX_PER_POLL {
        match next().transpose() {
            Some(message) => handle(message),
            None => return true,
        }
    }
    false
}

/// The messages since the last reading.
#[derive(Debug)]
struct Tally {
    since: Instant,
    messages: u64,
    bytes: u64,
    /// Messages that could not be decoded.
    garbled: u64,
    ages: VecDeque<u64>,
    periods: Periods,
}

/// Times between messages, in milliseconds: their number, mean and sum of squared differences from it
/// (Welford 1962).
#[derive(Debug, Clone, Copy, Default)]
struct Periods {
    count: u64,
    min: f64,
    max: f64,
    mean: f64,
    squares: f64,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            since: Instant::now(),
            messages: 0,
            bytes: 0,
            garbled: 0,
            ages: VecDeque::new(),
            periods: Periods::default(),
        }
    }
}

/// Measurements over some time.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Reading {
    pub(crate) seconds: f64,
    pub(crate) messages: u64,
    /// Messages that the publisher overwrote before this program read them.
    pub(crate) missed: u64,
    /// Messages that could not be decoded.
    pub(crate) garbled: u64,
    pub(crate) hz: f64,
    /// The bytes of the messages that were read.
    pub(crate) bytes: u64,
    /// Assumes that missed messages have the mean size of the messages that were read.
    pub(crate) bytes_per_second: f64,
    /// The time between two messages; `None` if there were fewer than two.
    pub(crate) period_ms: Option<Period>,
    /// From the stamp of a message until this program read it; `None` if messages have no stamps. It is up to
    /// 0.2 ms too long, plus the time this program waits for a processor. Messages that arrived while the ring
    /// was not polled are left out.
    pub(crate) latency: Option<Percentiles>,
}

/// Statistics of the time between two messages, in milliseconds.
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
        Ok(Meter { observer, missed: 0, last: None, stalled: false, tally: Tally::default() })
    }

    /// The number of publishers that are observed.
    pub(crate) fn publishers(&self) -> usize {
        self.observer.publishers()
    }

    /// Starts the time of the next reading now.
    pub(crate) fn restart_clock(&mut self) {
        self.tally.since = Instant::now();
    }

    /// Measures for the given time. Calls `on_poll` with the number of publishers after each poll, so that the
    /// caller notices when publishers appear and disappear.
    pub(crate) fn watch(&mut self, time: Duration, mut on_poll: impl FnMut(usize)) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.poll();
            on_poll(self.publishers());
            thread::sleep(POLL_INTERVAL.min(time));
        }
    }

    /// Reads the messages that are in the ring, up to [`MAX_PER_POLL`].
    pub(crate) fn poll(&mut self) {
        let Meter { observer, last, stalled, tally, .. } = self;
        let read_all = read_batch(
            || observer.look(),
            |seen| match stalled {
                true => tally.note_late(seen, last),
                false => tally.note(seen, last),
            },
        );
        *stalled &= !read_all;
    }

    /// The caller did not poll for a while. The messages that arrived meanwhile count, but their latency and period
    /// do not.
    pub(crate) fn mark_stalled(&mut self) {
        self.stalled = true;
    }

    /// Returns the measurements since the last reading, and starts the next.
    #[allow(clippy::cast_precision_loss, reason = "rates are shown with three digits")]
    pub(crate) fn read(&mut self) -> Reading {
        let tally = std::mem::take(&mut self.tally);
        let seconds = tally.since.elapsed().as_secs_f64();
        let missed = self.observer.missed() - self.missed;
        self.missed += missed;
        let hz = tally.messages.saturating_add(missed) as f64 / seconds;
        let mean = tally.bytes as f64 / tally.messages.max(1) as f64;
        Reading {
            seconds,
            messages: tally.messages,
            missed,
            garbled: tally.garbled,
            hz,
            bytes: tally.bytes,
            bytes_per_second: mean * hz,
            period_ms: tally.periods.read(),
            latency: Percentiles::of(tally.ages.into()),
        }
    }
}

impl Tally {
    fn note(&mut self, seen: Result<Sighting, Error>, last: &mut Option<Instant>) {
        let Some(seen) = self.count(seen) else { return };
        let now = Instant::now();
        let stamp = seen.header.map(|header| header.stamp_ns);
        self.ages.extend(stamp.and_then(clock::age_ns));
        self.ages.drain(..self.ages.len().saturating_sub(MAX_LATENCIES));
        if let Some(last) = last.replace(now) {
            self.periods.note((now - last).as_secs_f64() * 1000.0);
        }
    }

    /// Like `note`, for a message whose time of arrival is unknown.
    fn note_late(&mut self, seen: Result<Sighting, Error>, last: &mut Option<Instant>) {
        if self.count(seen).is_some() {
            *last = None;
        }
    }

    fn count(&mut self, seen: Result<Sighting, Error>) -> Option<Sighting> {
        match seen {
            Ok(seen) => {
                self.messages += 1;
                self.bytes = self.bytes.saturating_add(seen.nbytes as u64);
                Some(seen)
            }
            Err(error) => {
                // Other errors concern this process, not a message.
                self.garbled += u64::from(matches!(error, Error::BadMessage { .. }));
                None
            }
        }
    }
}

impl Periods {
    #[allow(clippy::cast_precision_loss, reason = "there are fewer than 2^52")]
    fn note(&mut self, period: f64) {
        self.min = if self.count == 0 { period } else { self.min.min(period) };
        self.max = self.max.max(period);
        self.count += 1;
        let from_old = period - self.mean;
        self.mean += from_old / self.count as f64;
        self.squares += from_old * (period - self.mean);
    }

    #[allow(clippy::cast_precision_loss, reason = "there are fewer than 2^52")]
    fn read(&self) -> Option<Period> {
        let Periods { count, min, max, mean, squares } = *self;
        (count > 0).then(|| Period { min, max, mean, deviation: (squares / count as f64).sqrt() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_poll_reads_a_limited_number_of_messages() {
        let mut count = 0;
        assert!(!read_batch(|| Ok(Some(())), |_| count += 1));
        assert_eq!(count, MAX_PER_POLL);
        let mut left = 3;
        let next = || {
            left -= 1;
            Ok((left > 0).then_some(()))
        };
        let mut count = 0;
        assert!(read_batch(next, |_| count += 1));
        assert_eq!(count, 2);
    }

    #[test]
    fn only_undecodable_messages_count_as_garbled() {
        let (mut tally, mut last) = (Tally::default(), None);
        tally.note(Err(Error::BadMessage { what: "it is too short" }), &mut last);
        tally.note_late(Err(Error::BadMessage { what: "it is too short" }), &mut last);
        tally.note(Err(Error::NoSuchPool { pool: "camera".to_owned() }), &mut last);
        assert_eq!((tally.garbled, tally.messages), (2, 0));
    }

    #[test]
    fn period_statistics_are_right() {
        assert!(Periods::default().read().is_none());
        let mut periods = Periods::default();
        [2.0, 4.0, 6.0, 8.0].into_iter().for_each(|period| periods.note(period));
        let Period { min, max, mean, deviation } = periods.read().unwrap();
        assert_eq!((min, max, mean), (2.0, 8.0, 5.0));
        assert!((deviation - 5.0_f64.sqrt()).abs() < 1e-12, "{deviation}");
    }
}
