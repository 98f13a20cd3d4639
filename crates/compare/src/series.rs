//! What was measured: one [`Series`] for each work and who did it, in takes, which become rows.

use serde::{Deserialize, Serialize};

use crate::samples::{Summary, median};

/// Floors up to this many nanoseconds are those of cores that share a cache.
const NEAR: f64 = 300.0;

/// Floors agree if they differ by less than this share of the larger.
const SAME: f64 = 0.1;

/// How far apart the two cores were, by the floor before and after a take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    /// Nothing crossed from core to core.
    One,
    /// The two were threads of one core.
    Threads,
    /// Both floors were alike, and low.
    Near,
    /// Both floors were alike, and high.
    Far,
    /// The floors differ: the cores moved meanwhile.
    Moved,
}

impl Place {
    /// As it is shown.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::One => "",
            Place::Threads => "one core",
            Place::Near => "near",
            Place::Far => "far",
            Place::Moved => "moved",
        }
    }
}

/// Nanoseconds of a bare round trip, before and after.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Floors {
    /// Just before the take.
    pub(crate) before: f64,
    /// Just after it.
    pub(crate) after: f64,
    /// The two were found to slow each other down.
    #[serde(default)]
    pub(crate) one_core: bool,
}

impl Floors {
    /// Between the two.
    pub(crate) fn mean(self) -> f64 {
        f64::midpoint(self.before, self.after)
    }

    fn place(self) -> Place {
        match (alike(self.before, self.after), self.mean() <= NEAR) {
            (false, _) => Place::Moved,
            (true, true) if self.one_core => Place::Threads,
            (true, true) => Place::Near,
            (true, false) => Place::Far,
        }
    }
}

fn alike(one: f64, two: f64) -> bool {
    (one - two).abs() <= SAME * one.max(two)
}

/// What one of them did in one round.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Take {
    /// Takes of the same round were made one right after the other.
    pub(crate) round: usize,
    /// If it was about two cores.
    pub(crate) floors: Option<Floors>,
    /// Nanoseconds of an operation.
    pub(crate) samples: Vec<f64>,
}

impl Take {
    /// Where the cores were.
    pub(crate) fn place(&self) -> Place {
        self.floors.map_or(Place::One, Floors::place)
    }

    /// Whether two takes may be compared: same round, and nothing moved in between.
    fn beside(&self, other: &Take) -> bool {
        self.round == other.round
            && match (self.floors, other.floors) {
                (Some(one), Some(two)) => alike(one.mean(), two.mean()),
                (one, two) => one.is_none() && two.is_none(),
            }
    }
}

/// All that one of them did of one work.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Series {
    /// What it is about: `hand-off`, `pool`.
    pub(crate) group: String,
    /// What was done.
    pub(crate) work: String,
    /// Who did it.
    pub(crate) who: String,
    /// In order.
    pub(crate) takes: Vec<Take>,
}

impl Series {
    /// With no take yet.
    pub(crate) fn new(group: &str, work: &str, who: &str) -> Series {
        let (group, work, who) = (group.into(), work.into(), who.into());
        Series { group, work, who, takes: Vec::new() }
    }

    /// What bars call it.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}/{}", self.group, self.work, self.who)
    }

    /// One row for each place where the cores were.
    pub(crate) fn rows(&self) -> Vec<Row> {
        [Place::One, Place::Near, Place::Far, Place::Threads, Place::Moved]
            .into_iter()
            .filter_map(|place| self.row(place))
            .collect()
    }

    fn row(&self, place: Place) -> Option<Row> {
        let takes = || self.takes.iter().filter(|take| take.place() == place);
        let samples: Vec<f64> = takes().flat_map(|take| take.samples.iter().copied()).collect();
        let floors: Vec<f64> = takes().filter_map(|take| take.floors).map(Floors::mean).collect();
        Some(Row {
            group: self.group.clone(),
            work: self.work.clone(),
            who: self.who.clone(),
            place,
            rounds: takes().count(),
            floor: median(&floors),
            times: Summary::of(&samples)?,
        })
    }
}

/// One line of the table. Times are nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// What it is about.
    pub(crate) group: String,
    /// What was done.
    pub(crate) work: String,
    /// Who did it.
    pub(crate) who: String,
    /// Where the cores were.
    pub(crate) place: Place,
    /// In how many rounds.
    pub(crate) rounds: usize,
    /// The bare round trip in the median of these rounds.
    pub(crate) floor: Option<f64>,
    /// Of all samples of these rounds.
    #[serde(flatten)]
    pub(crate) times: Summary,
}

/// Medians of `of` over medians of `to`, one for each round where they can be compared and the cores
/// were there (or anywhere).
pub(crate) fn ratios(of: &Series, to: &Series, when: Option<Place>) -> Vec<f64> {
    let wanted = |take: &&Take| when.is_none_or(|place| take.place() == place);
    let beside = |one: &Take| {
        let same = |two: &&Take| match when {
            Some(_) => one.beside(two),
            None => one.round == two.round,
        };
        to.takes.iter().filter(wanted).find(same).and_then(|two| median(&two.samples))
    };
    let ratio = |one: &Take| Some(median(&one.samples)? / beside(one)?);
    of.takes.iter().filter(wanted).filter_map(ratio).collect()
}

/// Medians of `of` over the floors around them.
pub(crate) fn floor_ratios(of: &Series, when: Option<Place>) -> Vec<f64> {
    let wanted = |take: &&Take| when.is_none_or(|place| take.place() == place);
    let ratio = |take: &Take| Some(median(&take.samples)? / take.floors?.mean());
    of.takes.iter().filter(wanted).filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(round: usize, before: f64, after: f64, time: f64) -> Take {
        Take { round, floors: floors(before, after, false), samples: vec![time; 3] }
    }

    #[allow(clippy::unnecessary_wraps, reason = "as a take has them")]
    fn floors(before: f64, after: f64, one_core: bool) -> Option<Floors> {
        Some(Floors { before, after, one_core })
    }

    fn series(who: &str, takes: &[Take]) -> Series {
        Series { takes: takes.to_vec(), ..Series::new("g", "w", who) }
    }

    #[test]
    fn a_take_is_near_or_far_only_if_both_floors_agree() {
        assert_eq!(take(0, 150.0, 160.0, 1.0).place(), Place::Near);
        assert_eq!(take(0, 450.0, 480.0, 1.0).place(), Place::Far);
        assert_eq!(take(0, 150.0, 480.0, 1.0).place(), Place::Moved);
        assert_eq!(take(0, 80.0, 150.0, 1.0).place(), Place::Moved);
        assert_eq!(Take { round: 0, floors: None, samples: vec![] }.place(), Place::One);
    }

    #[test]
    fn threads_of_one_core_are_not_two_cores_that_are_near() {
        let place = |before, after| {
            Take { round: 0, floors: floors(before, after, true), samples: vec![] }.place()
        };
        assert_eq!(place(100.0, 100.0), Place::Threads);
        assert_eq!(place(100.0, 150.0), Place::Moved);
        assert_eq!(place(450.0, 450.0), Place::Far, "work was slow for another reason");
    }

    #[test]
    fn every_sample_is_in_one_row() {
        let takes =
            [take(0, 150.0, 150.0, 1.0), take(1, 150.0, 480.0, 2.0), take(2, 480.0, 480.0, 3.0)];
        let rows = series("a", &takes).rows();
        let found: Vec<_> = rows.iter().map(|row| (row.place, row.times.count)).collect();
        assert_eq!(found, [(Place::Near, 3), (Place::Far, 3), (Place::Moved, 3)]);
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
        assert_eq!(ratios(&ours, &theirs, Some(Place::Near)), [0.5]);
        assert_eq!(ratios(&ours, &theirs, Some(Place::Far)), [0.9]);
        assert_eq!(ratios(&ours, &theirs, None), [0.5, 0.25, 0.9]);
    }

    #[test]
    fn a_floor_is_that_around_the_take() {
        let ours = series("a", &[take(0, 100.0, 100.0, 250.0), take(1, 100.0, 480.0, 250.0)]);
        assert_eq!(floor_ratios(&ours, Some(Place::Near)), [2.5]);
    }
}
