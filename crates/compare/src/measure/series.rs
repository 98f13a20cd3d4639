//! Measurements: takes in rounds, a [`Series`] for each workload and subject, and the rows of the table.

use serde::{Deserialize, Serialize};

use crate::measure::samples::{Summary, median};

/// The largest floor of near cores, in nanoseconds. Such cores share a cache.
const MAX_NEAR_FLOOR: f64 = 300.0;

/// Floors agree if they differ by at most this share of the larger.
const FLOOR_TOLERANCE: f64 = 0.1;

/// The distance of the two cores during a take, judged by the floors before and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CoreDistance {
    /// The workload runs in one process.
    One,
    /// The two processes ran on two hardware threads of one core.
    Threads,
    /// Both floors agree, and are low.
    Near,
    /// Both floors agree, and are high.
    Far,
    /// The floors differ: the distance changed during the take.
    Moved,
}

impl CoreDistance {
    /// The text in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CoreDistance::One => "",
            CoreDistance::Threads => "one core",
            CoreDistance::Near => "near",
            CoreDistance::Far => "far",
            CoreDistance::Moved => "moved",
        }
    }
}

/// The floors before and after a take, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Floors {
    /// The floor just before the take.
    pub(crate) before: f64,
    /// The floor just after the take.
    pub(crate) after: f64,
    /// Whether the two processes slow each other down, as two hardware threads of one core do.
    #[serde(default)]
    pub(crate) one_core: bool,
}

impl Floors {
    /// The mean of both.
    pub(crate) fn mean(self) -> f64 {
        f64::midpoint(self.before, self.after)
    }

    fn cores(self) -> CoreDistance {
        match (agree(self.before, self.after), self.mean() <= MAX_NEAR_FLOOR) {
            (false, _) => CoreDistance::Moved,
            (true, true) if self.one_core => CoreDistance::Threads,
            (true, true) => CoreDistance::Near,
            (true, false) => CoreDistance::Far,
        }
    }
}

fn agree(one: f64, two: f64) -> bool {
    (one - two).abs() <= FLOOR_TOLERANCE * one.max(two)
}

/// The samples of one subject in one round.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Take {
    /// The round. Takes of one round follow each other directly.
    pub(crate) round: usize,
    /// The floors around the take; `None` for a workload in one process.
    pub(crate) floors: Option<Floors>,
    /// The times of operations, in nanoseconds.
    pub(crate) samples: Vec<f64>,
}

impl Take {
    /// The distance of the cores.
    pub(crate) fn cores(&self) -> CoreDistance {
        self.floors.map_or(CoreDistance::One, Floors::cores)
    }

    /// Whether two takes can be compared: they are of one round, and their floors agree.
    fn is_comparable_with(&self, other: &Take) -> bool {
        self.round == other.round
            && match (self.floors, other.floors) {
                (Some(one), Some(two)) => agree(one.mean(), two.mean()),
                (one, two) => one.is_none() && two.is_none(),
            }
    }
}

/// All takes of one subject on one workload.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Series {
    /// The group, such as `hand-off`.
    pub(crate) group: String,
    /// The workload.
    pub(crate) work: String,
    /// The subject: cenote or a peer.
    pub(crate) who: String,
    /// The takes, in the order of rounds.
    pub(crate) takes: Vec<Take>,
}

impl Series {
    /// A series without takes.
    pub(crate) fn new(group: &str, work: &str, who: &str) -> Series {
        let (group, work, who) = (group.into(), work.into(), who.into());
        Series { group, work, who, takes: Vec::new() }
    }

    /// The name in `bars.toml`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}/{}", self.group, self.work, self.who)
    }

    /// One row for each distance of the cores.
    pub(crate) fn rows(&self) -> Vec<ResultRow> {
        [
            CoreDistance::One,
            CoreDistance::Near,
            CoreDistance::Far,
            CoreDistance::Threads,
            CoreDistance::Moved,
        ]
        .into_iter()
        .filter_map(|cores| self.row(cores))
        .collect()
    }

    fn row(&self, cores: CoreDistance) -> Option<ResultRow> {
        let takes = || self.takes.iter().filter(|take| take.cores() == cores);
        let samples: Vec<f64> = takes().flat_map(|take| take.samples.iter().copied()).collect();
        let floors: Vec<f64> = takes().filter_map(|take| take.floors).map(Floors::mean).collect();
        Some(ResultRow {
            group: self.group.clone(),
            work: self.work.clone(),
            who: self.who.clone(),
            cores,
            rounds: takes().count(),
            floor: median(&floors),
            times: Summary::of(&samples)?,
        })
    }
}

/// One row of the table. Times are in nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ResultRow {
    /// The group.
    pub(crate) group: String,
    /// The workload.
    pub(crate) work: String,
    /// The subject.
    pub(crate) who: String,
    /// The distance of the cores.
    #[serde(rename = "place")]
    pub(crate) cores: CoreDistance,
    /// The number of rounds with this distance.
    pub(crate) rounds: usize,
    /// The median of the floors in these rounds; `None` for a workload in one process.
    pub(crate) floor: Option<f64>,
    /// The percentiles of all samples of these rounds.
    #[serde(flatten)]
    pub(crate) times: Summary,
}

/// For each round, the median of `of` divided by the median of `to`. With `when`, only rounds in which both takes have
/// this distance and their floors agree; without it, every round.
pub(crate) fn ratios(of: &Series, to: &Series, when: Option<CoreDistance>) -> Vec<f64> {
    let wanted = |take: &&Take| when.is_none_or(|cores| take.cores() == cores);
    let reference = |one: &Take| {
        let same = |two: &&Take| match when {
            Some(_) => one.is_comparable_with(two),
            None => one.round == two.round,
        };
        to.takes.iter().filter(wanted).find(same).and_then(|two| median(&two.samples))
    };
    let ratio = |one: &Take| Some(median(&one.samples)? / reference(one)?);
    of.takes.iter().filter(wanted).filter_map(ratio).collect()
}

/// For each round, the median of `of` divided by the mean of the floors around it. With `when`, only rounds with this
/// distance.
pub(crate) fn floor_ratios(of: &Series, when: Option<CoreDistance>) -> Vec<f64> {
    let wanted = |take: &&Take| when.is_none_or(|cores| take.cores() == cores);
    let ratio = |take: &Take| Some(median(&take.samples)? / take.floors?.mean());
    of.takes.iter().filter(wanted).filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(round: usize, before: f64, after: f64, time: f64) -> Take {
        Take { round, floors: floors(before, after, false), samples: vec![time; 3] }
    }

    #[allow(clippy::unnecessary_wraps, reason = "a take has an option")]
    fn floors(before: f64, after: f64, one_core: bool) -> Option<Floors> {
        Some(Floors { before, after, one_core })
    }

    fn series(who: &str, takes: &[Take]) -> Series {
        Series { takes: takes.to_vec(), ..Series::new("g", "w", who) }
    }

    #[test]
    fn a_take_is_near_or_far_only_if_both_floors_agree() {
        assert_eq!(take(0, 150.0, 160.0, 1.0).cores(), CoreDistance::Near);
        assert_eq!(take(0, 450.0, 480.0, 1.0).cores(), CoreDistance::Far);
        assert_eq!(take(0, 150.0, 480.0, 1.0).cores(), CoreDistance::Moved);
        assert_eq!(take(0, 80.0, 150.0, 1.0).cores(), CoreDistance::Moved);
        assert_eq!(Take { round: 0, floors: None, samples: vec![] }.cores(), CoreDistance::One);
    }

    #[test]
    fn hardware_threads_of_one_core_are_not_near_cores() {
        let cores = |before, after| {
            Take { round: 0, floors: floors(before, after, true), samples: vec![] }.cores()
        };
        assert_eq!(cores(100.0, 100.0), CoreDistance::Threads);
        assert_eq!(cores(100.0, 150.0), CoreDistance::Moved);
        assert_eq!(cores(450.0, 450.0), CoreDistance::Far, "work was slow for another reason");
    }

    #[test]
    fn every_sample_is_in_one_row() {
        let takes =
            [take(0, 150.0, 150.0, 1.0), take(1, 150.0, 480.0, 2.0), take(2, 480.0, 480.0, 3.0)];
        let rows = series("a", &takes).rows();
        let found: Vec<_> = rows.iter().map(|row| (row.cores, row.times.count)).collect();
        assert_eq!(
            found,
            [(CoreDistance::Near, 3), (CoreDistance::Far, 3), (CoreDistance::Moved, 3)]
        );
    }

    #[test]
    fn only_rounds_of_equal_floors_are_compared() {
        let ours = series(
            "a",
            &[take(0, 150.0, 150.0, 1.0), take(1, 150.0, 150.0, 1.0), take(2, 480.0, 480.0, 9.0)],
        );
        let theirs = series(
            "b",
            &[take(0, 155.0, 150.0, 2.0), take(1, 80.0, 80.0, 4.0), take(2, 480.0, 480.0, 10.0)],
        );
        assert_eq!(ratios(&ours, &theirs, Some(CoreDistance::Near)), [0.5]);
        assert_eq!(ratios(&ours, &theirs, Some(CoreDistance::Far)), [0.9]);
        assert_eq!(ratios(&ours, &theirs, None), [0.5, 0.25, 0.9]);
    }

    #[test]
    fn a_take_is_compared_with_its_own_floors() {
        let ours = series("a", &[take(0, 100.0, 100.0, 250.0), take(1, 100.0, 480.0, 250.0)]);
        assert_eq!(floor_ratios(&ours, Some(CoreDistance::Near)), [2.5]);
    }
}
