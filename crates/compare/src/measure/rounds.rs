//! Rounds: in each, every subject of a workload has one short take.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::Result;
use crate::measure::samples::nanos_since;
use crate::measure::series::{Series, Take};
use crate::measure::shared_page::clock;

/// How long and how often to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    /// The number of rounds of each workload.
    pub(crate) rounds: usize,
    /// The approximate duration of a take.
    pub(crate) take: Duration,
    /// How long every subject runs before the first round.
    pub(crate) warm_up: Duration,
    /// Whether this is the full run.
    pub(crate) full: bool,
}

impl Schedule {
    /// A warm-up that is long enough to use every slot once: the kernel clears a 24 MB frame in 20 ms. It is shorter
    /// than `most` if takes are very short, as in tests.
    pub(crate) fn long_warm_up(&self, most: Duration) -> Duration {
        most.min(40 * self.take)
    }

    /// The number of round trips of a floor.
    pub(crate) fn floor_trips(&self) -> usize {
        if self.take < Duration::from_millis(5) { 500 } else { 5_000 }
    }
}

/// A subject of a workload in one process: its name and its operation.
pub(crate) struct Subject<'a> {
    who: String,
    /// How many operations one call does.
    operations: f64,
    run: Box<dyn FnMut(u32) -> Result<()> + 'a>,
}

impl<'a> Subject<'a> {
    /// A subject whose every call does one operation.
    pub(crate) fn new<T>(who: &str, mut once: impl FnMut() -> Result<T> + 'a) -> Subject<'a> {
        let many = move |times| {
            for _ in 0..times {
                black_box(once()?);
            }
            Ok(())
        };
        Subject { who: who.into(), operations: 1.0, run: Box::new(many) }
    }

    /// The same subject, whose every call does this many operations.
    pub(crate) fn operations(mut self, count: u32) -> Subject<'a> {
        self.operations = count.into();
        self
    }
}

impl std::fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Subject").field(&self.who).finish()
    }
}

/// The shortest sample. Faster operations are timed in batches, because reading the clock takes 30 ns.
const MIN_SAMPLE: Duration = Duration::from_micros(4);

/// Measures all subjects of a workload, in rounds. Returns one series for each.
pub(crate) fn interleave(
    schedule: Schedule,
    group: &str,
    work: &str,
    mut subjects: Vec<Subject<'_>>,
) -> Result<Vec<Series>> {
    let batches = subjects
        .iter_mut()
        .map(|subject| warm_up(subject, schedule))
        .collect::<Result<Vec<u32>>>()?;
    let mut all: Vec<Series> =
        subjects.iter().map(|subject| Series::new(group, work, &subject.who)).collect();
    for round in 0..schedule.rounds {
        for ((subject, series), batch) in subjects.iter_mut().zip(&mut all).zip(&batches) {
            let samples = sample(subject, *batch, schedule.take)?;
            series.takes.push(Take { round, floors: None, samples });
        }
    }
    Ok(all)
}

fn sample(subject: &mut Subject<'_>, batch: u32, time: Duration) -> Result<Vec<f64>> {
    let start = Instant::now();
    let mut samples = Vec::new();
    while samples.is_empty() || start.elapsed() < time {
        let began = Instant::now();
        (subject.run)(batch)?;
        samples.push(nanos_since(began) / f64::from(batch) / subject.operations);
    }
    Ok(samples)
}

/// Warms a subject up, and returns how many calls make a sample of at least [`MIN_SAMPLE`].
fn warm_up(subject: &mut Subject<'_>, schedule: Schedule) -> Result<u32> {
    let start = Instant::now();
    let mut batch = 1;
    loop {
        // The best of three, because the first call sets things up.
        let mut best = Duration::MAX;
        for _ in 0..3 {
            let began = Instant::now();
            (subject.run)(batch)?;
            best = best.min(began.elapsed());
        }
        if best >= MIN_SAMPLE || batch >= 1 << 16 {
            while start.elapsed() < schedule.warm_up {
                (subject.run)(batch)?;
            }
            return Ok(batch);
        }
        batch *= 2;
    }
}

/// The most samples of a take in [`time_each`].
const MAX_SAMPLES: usize = 50_000;

/// Repeats an operation for the given time. It gets a value that no earlier call got, and returns its own time.
pub(crate) fn time_each(
    time: Duration,
    mut once: impl FnMut(u64) -> Result<f64>,
) -> Result<Vec<f64>> {
    let start = Instant::now();
    let first = clock();
    let mut samples = Vec::new();
    while samples.is_empty() || (samples.len() < MAX_SAMPLES && start.elapsed() < time) {
        samples.push(once(first + samples.len() as u64)?);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEDULE: Schedule = Schedule {
        rounds: 3,
        take: Duration::from_micros(50),
        warm_up: Duration::ZERO,
        full: false,
    };

    #[test]
    fn every_subject_has_a_take_in_every_round() {
        let subjects =
            vec![Subject::new("a", || Ok(())), Subject::new("b", || Ok(black_box(vec![0; 100])))];
        let all = interleave(SCHEDULE, "g", "w", subjects).expect("rounds");
        for series in &all {
            let rounds: Vec<usize> = series.takes.iter().map(|take| take.round).collect();
            assert_eq!(rounds, [0, 1, 2], "{}", series.who);
            assert!(series.takes.iter().all(|take| !take.samples.is_empty()));
        }
        assert_eq!((all[0].who.as_str(), all[1].who.as_str()), ("a", "b"));
    }

    #[test]
    fn a_failure_ends_the_measurement() {
        let subjects = vec![Subject::new("a", || Err::<(), _>("no".into()))];
        assert!(interleave(SCHEDULE, "g", "w", subjects).is_err());
    }
}
