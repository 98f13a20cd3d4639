//! How long things are measured, and the rounds: all who do a work take turns, a short take each.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::Result;
use crate::page::{clock, nanos};
use crate::series::{Series, Take};

/// How long, and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Rounds of each work.
    pub(crate) rounds: usize,
    /// How long one take is, about.
    pub(crate) take: Duration,
    /// How long everybody does it before that.
    pub(crate) warm_up: Duration,
    /// Everything, or the core.
    pub(crate) full: bool,
}

impl Pace {
    /// How long it takes at most until every slot that will be used has been: the kernel clears a
    /// 24 MB frame in 20 ms. Less where takes are so short that nobody wants to know.
    pub(crate) fn touched(&self, most: Duration) -> Duration {
        most.min(40 * self.take)
    }

    /// Bare round trips before and after a take.
    pub(crate) fn floor_trips(&self) -> usize {
        if self.take < Duration::from_millis(5) { 500 } else { 5_000 }
    }
}

/// Who does something on one core, as often as it is told.
pub(crate) struct Subject<'a> {
    who: String,
    /// How many of what is counted it does at once.
    each: f64,
    run: Box<dyn FnMut(u32) -> Result<()> + 'a>,
}

impl<'a> Subject<'a> {
    /// Does one operation at a time.
    pub(crate) fn new<T>(who: &str, mut once: impl FnMut() -> Result<T> + 'a) -> Subject<'a> {
        let many = move |times| {
            for _ in 0..times {
                black_box(once()?);
            }
            Ok(())
        };
        Subject { who: who.into(), each: 1.0, run: Box::new(many) }
    }

    /// Of which each is so many of what is counted.
    pub(crate) fn of(mut self, many: u32) -> Subject<'a> {
        self.each = many.into();
        self
    }
}

impl std::fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Subject").field(&self.who).finish()
    }
}

/// What takes less than this is timed several at once: reading the clock takes 30 ns.
const SHORTEST: Duration = Duration::from_micros(4);

/// Rounds of all of them, one after the other.
pub(crate) fn interleave(
    pace: Pace,
    group: &str,
    work: &str,
    mut subjects: Vec<Subject<'_>>,
) -> Result<Vec<Series>> {
    let batches =
        subjects.iter_mut().map(|subject| batch(subject, pace)).collect::<Result<Vec<u32>>>()?;
    let mut all: Vec<Series> =
        subjects.iter().map(|subject| Series::new(group, work, &subject.who)).collect();
    for round in 0..pace.rounds {
        for ((subject, series), batch) in subjects.iter_mut().zip(&mut all).zip(&batches) {
            let samples = take(subject, *batch, pace.take)?;
            series.takes.push(Take { round, floors: None, samples });
        }
    }
    Ok(all)
}

fn take(subject: &mut Subject<'_>, batch: u32, long: Duration) -> Result<Vec<f64>> {
    let start = Instant::now();
    let mut samples = Vec::new();
    while samples.is_empty() || start.elapsed() < long {
        let began = Instant::now();
        (subject.run)(batch)?;
        samples.push(nanos(began) / f64::from(batch) / subject.each);
    }
    Ok(samples)
}

/// How many at once, found by trying; which also warms it up.
fn batch(subject: &mut Subject<'_>, pace: Pace) -> Result<u32> {
    let start = Instant::now();
    let mut batch = 1;
    loop {
        // The best of a few: the first one sets things up.
        let mut best = Duration::MAX;
        for _ in 0..3 {
            let began = Instant::now();
            (subject.run)(batch)?;
            best = best.min(began.elapsed());
        }
        if best >= SHORTEST || batch >= 1 << 16 {
            while start.elapsed() < pace.warm_up {
                (subject.run)(batch)?;
            }
            return Ok(batch);
        }
        batch *= 2;
    }
}

/// Operations in one take at most, where each is timed.
const MOST: usize = 50_000;

/// With values that none before it had.
pub(crate) fn repeat(long: Duration, mut once: impl FnMut(u64) -> Result<f64>) -> Result<Vec<f64>> {
    let start = Instant::now();
    let first = clock();
    let mut samples = Vec::new();
    while samples.is_empty() || (samples.len() < MOST && start.elapsed() < long) {
        samples.push(once(first + samples.len() as u64)?);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace =
        Pace { rounds: 3, take: Duration::from_micros(50), warm_up: Duration::ZERO, full: false };

    #[test]
    fn everybody_has_a_take_in_every_round() {
        let subjects =
            vec![Subject::new("a", || Ok(())), Subject::new("b", || Ok(black_box(vec![0; 100])))];
        let all = interleave(PACE, "g", "w", subjects).expect("rounds");
        for series in &all {
            let rounds: Vec<usize> = series.takes.iter().map(|take| take.round).collect();
            assert_eq!(rounds, [0, 1, 2], "{}", series.who);
            assert!(series.takes.iter().all(|take| !take.samples.is_empty()));
        }
        assert_eq!((all[0].who.as_str(), all[1].who.as_str()), ("a", "b"));
    }

    #[test]
    fn a_failure_ends_it() {
        let subjects = vec![Subject::new("a", || Err::<(), _>("no".into()))];
        assert!(interleave(PACE, "g", "w", subjects).is_err());
    }
}
