//! Rate, bandwidth and latency of a topic, seen from outside.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use cenote::{Error, Observer, Sighting};
use serde::Serialize;

use crate::clock;
use crate::failure::Outcome;
use crate::percentile::Percentiles;

/// How long to sleep between two looks. A message is seen so much later at most, which is part of its
/// latency as seen from here.
pub(crate) const NAP: Duration = Duration::from_micros(200);

/// The most messages of a topic that are looked at before others have their turn.
const AT_ONCE: usize = 1024;

/// The most latencies that are kept for a reading: the last ones.
const LATENCIES: usize = 65_536;

/// Watches one topic.
#[derive(Debug)]
pub(crate) struct Meter {
    observer: Observer,
    missed: u64,
    /// When the last message was seen.
    last: Option<Instant>,
    /// Nobody looked for a while: what has come meanwhile is older than it had to be when it is seen.
    stalled: bool,
    tally: Tally,
}

/// Takes what comes, until there is nothing, or it was enough: then false. What makes no sense counts.
fn take_some<T>(
    mut next: impl FnMut() -> Result<Option<T>, Error>,
    mut take: impl FnMut(Result<T, Error>),
) -> bool {
    for _ in 0..AT_ONCE {
        match next().transpose() {
            Some(found) => take(found),
            None => return true,
        }
    }
    false
}

/// What was seen since the last reading.
#[derive(Debug)]
struct Tally {
    since: Instant,
    messages: u64,
    bytes: u64,
    /// What was there, but made no sense.
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

/// What was seen over some time.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Reading {
    pub(crate) seconds: f64,
    pub(crate) messages: u64,
    /// Those that were sent, but gone before they were seen.
    pub(crate) missed: u64,
    /// Those that made no sense.
    pub(crate) garbled: u64,
    pub(crate) hz: f64,
    /// Of those that were seen.
    pub(crate) bytes: u64,
    /// Those that were missed are taken to be like those that were seen.
    pub(crate) bytes_per_second: f64,
    /// The time between two messages, if there were two.
    pub(crate) period_ms: Option<Period>,
    /// From the stamp of a message until it was seen, if messages have stamps: up to 0.2 ms too long, and by
    /// as long as this program has to wait for a processor. Of those that came while nobody looked it is not
    /// taken.
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
        Ok(Meter { observer, missed: 0, last: None, stalled: false, tally: Tally::default() })
    }

    /// How many publishers are looked at.
    pub(crate) fn publishers(&self) -> usize {
        self.observer.publishers()
    }

    /// What follows is timed from here on.
    pub(crate) fn begin(&mut self) {
        self.tally.since = Instant::now();
    }

    /// Looks for as long as this. It is told again and again how many publishers are looked at: one may be
    /// gone, and another there, long before the time is over.
    pub(crate) fn watch(&mut self, time: Duration, mut tell: impl FnMut(usize)) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.look();
            tell(self.publishers());
            thread::sleep(NAP.min(time));
        }
    }

    /// Looks at what is there, though not for ever.
    pub(crate) fn look(&mut self) {
        let Meter { observer, last, stalled, tally, .. } = self;
        let took_all = take_some(
            || observer.look(),
            |seen| match stalled {
                true => tally.note_late(seen, last),
                false => tally.note(seen, last),
            },
        );
        *stalled &= !took_all;
    }

    /// Nobody could look for a while. What has come meanwhile counts, but not the time until it was seen.
    pub(crate) fn stall(&mut self) {
        self.stalled = true;
    }

    /// What was seen since the last reading.
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
        self.ages.drain(..self.ages.len().saturating_sub(LATENCIES));
        if let Some(last) = last.replace(now) {
            self.periods.note((now - last).as_secs_f64() * 1000.0);
        }
    }

    /// Like `note`, of what came while nobody looked: when, nobody knows.
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
                // Anything else is wrong here, not with a message.
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
    fn who_sends_quicker_than_can_be_looked_at_does_not_keep_others_waiting() {
        let mut taken = 0;
        assert!(!take_some(|| Ok(Some(())), |_| taken += 1));
        assert_eq!(taken, AT_ONCE);
        let mut left = 3;
        let next = || {
            left -= 1;
            Ok((left > 0).then_some(()))
        };
        let mut taken = 0;
        assert!(take_some(next, |_| taken += 1));
        assert_eq!(taken, 2);
    }

    #[test]
    fn only_messages_can_make_no_sense() {
        let (mut tally, mut last) = (Tally::default(), None);
        tally.note(Err(Error::BadMessage { what: "it is too short" }), &mut last);
        tally.note_late(Err(Error::BadMessage { what: "it is too short" }), &mut last);
        tally.note(Err(Error::NoSuchPool { pool: "camera".to_owned() }), &mut last);
        assert_eq!((tally.garbled, tally.messages), (2, 0));
    }

    #[test]
    fn periods_are_summed_up() {
        assert!(Periods::default().read().is_none());
        let mut periods = Periods::default();
        [2.0, 4.0, 6.0, 8.0].into_iter().for_each(|period| periods.note(period));
        let Period { min, max, mean, deviation } = periods.read().unwrap();
        assert_eq!((min, max, mean), (2.0, 8.0, 5.0));
        assert!((deviation - 5.0_f64.sqrt()).abs() < 1e-12, "{deviation}");
    }
}
