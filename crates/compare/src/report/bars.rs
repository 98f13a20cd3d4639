//! Bars: the largest accepted ratio of a subject's time to that of another, or to the floor.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::measure::samples::median;
use crate::measure::series::{CoreDistance, Series, floor_ratios, ratios};

/// The content of `bars.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bars {
    bar: Vec<Bar>,
}

/// One bar.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bar {
    name: String,
    /// The key of a series.
    of: String,
    /// The key of another series, or `floor`.
    to: String,
    max: f64,
    goal: Option<f64>,
    /// The required distance of the cores: `one` for a workload in one process. `None` if every round counts.
    when: Option<CoreDistance>,
}

/// The result of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// The ratio is at most the bar.
    Held,
    /// The ratio is larger.
    Missed,
    /// The group was run, but there is no round to judge by.
    Unmeasured,
    /// The group was not run.
    #[serde(rename = "left")]
    NotRun,
}

/// A bar and its result.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct BarOutcome {
    /// The name of the bar.
    pub(crate) name: String,
    /// The largest accepted ratio.
    pub(crate) max: f64,
    /// The ratio to aim for.
    pub(crate) goal: Option<f64>,
    /// The measured ratio: the median over rounds of the ratio of medians.
    pub(crate) ratio: Option<f64>,
    /// The number of rounds.
    pub(crate) rounds: usize,
    /// The result.
    pub(crate) verdict: Verdict,
    /// Why there is no ratio.
    pub(crate) why: Option<String>,
}

impl Bars {
    /// Parses `bars.toml`. Returns an error for unknown fields.
    pub(crate) fn parse(text: &str) -> Result<Bars, toml::de::Error> {
        toml::from_str(text)
    }

    /// Judges every bar. `groups` are the groups of this run.
    pub(crate) fn judge(&self, groups: &[&str], all: &[Series]) -> Vec<BarOutcome> {
        self.bar.iter().map(|bar| bar.judge(groups, all)).collect()
    }
}

impl Bar {
    fn group(&self) -> &str {
        self.of.split('/').next().unwrap_or_default()
    }

    fn judge(&self, groups: &[&str], all: &[Series]) -> BarOutcome {
        if !groups.contains(&self.group()) {
            return self.outcome(
                Verdict::NotRun,
                &[],
                Some(format!("{} was not run", self.group())),
            );
        }
        let ratios = match self.ratios(all) {
            Ok(ratios) => ratios,
            Err(why) => return self.outcome(Verdict::Unmeasured, &[], Some(why)),
        };
        match median(&ratios) {
            Some(ratio) if ratio <= self.max => self.outcome(Verdict::Held, &ratios, None),
            Some(_) => self.outcome(Verdict::Missed, &ratios, None),
            None => self.outcome(Verdict::Unmeasured, &[], Some(self.no_rounds())),
        }
    }

    fn ratios(&self, all: &[Series]) -> Result<Vec<f64>, String> {
        let find = |key: &str| {
            all.iter().find(|series| series.key() == key).ok_or(format!("no {key} in this run"))
        };
        let of = find(&self.of)?;
        match self.to.as_str() {
            "floor" => Ok(floor_ratios(of, self.when)),
            key => Ok(ratios(of, find(key)?, self.when)),
        }
    }

    fn no_rounds(&self) -> String {
        match self.when {
            Some(cores) if cores != CoreDistance::One => {
                format!("no round with {} cores for both", cores.name())
            }
            _ => "no round of both".into(),
        }
    }

    fn outcome(&self, verdict: Verdict, ratios: &[f64], why: Option<String>) -> BarOutcome {
        let (name, ratio) = (self.name.clone(), median(ratios));
        let (max, goal, rounds) = (self.max, self.goal, ratios.len());
        BarOutcome { name, max, goal, ratio, rounds, verdict, why }
    }
}

impl BarOutcome {
    /// One line for a terminal.
    pub(crate) fn line(&self) -> String {
        let goal = self.goal.map_or(String::new(), |goal| format!(", goal {goal}"));
        let bar = format!("{} (at most {}{goal})", self.name, self.max);
        match (self.verdict, self.ratio) {
            (Verdict::Held, Some(ratio)) => {
                format!("held        {}  {bar}, {} rounds", show(ratio), self.rounds)
            }
            (Verdict::Missed, Some(ratio)) => {
                format!("MISSED      {}  {bar}, {} rounds", show(ratio), self.rounds)
            }
            (Verdict::NotRun, _) => format!("not run             {bar}: {}", self.why()),
            _ => format!("UNMEASURED          {bar}: {}", self.why()),
        }
    }

    /// One line of a Markdown table.
    pub(crate) fn markdown(&self) -> String {
        let number =
            |number: Option<f64>| number.map_or(String::new(), |number| show(number).trim().into());
        let verdict = match self.verdict {
            Verdict::Held => "held".into(),
            Verdict::Missed => "**missed**".into(),
            Verdict::Unmeasured => format!("not measured: {}", self.why()),
            Verdict::NotRun => self.why().to_string(),
        };
        let BarOutcome { name, max, rounds, .. } = self;
        format!(
            "| {name} | {} | {max} | {} | {rounds} | {verdict} |",
            number(self.ratio),
            number(self.goal)
        )
    }

    fn why(&self) -> &str {
        self.why.as_deref().unwrap_or_default()
    }
}

fn show(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.4}") } else { format!("{ratio:>6.3}") }
}

/// One line for each bar of the groups that were run, and one for all others.
pub(crate) fn text(outcomes: &[BarOutcome]) -> String {
    let (not_run, judged): (Vec<_>, Vec<_>) =
        outcomes.iter().partition(|outcome| outcome.verdict == Verdict::NotRun);
    let mut text: String = judged.iter().map(|outcome| format!("  {}\n", outcome.line())).collect();
    if !not_run.is_empty() {
        let whys: BTreeSet<&str> = not_run.iter().map(|outcome| outcome.why()).collect();
        let whys: Vec<&str> = whys.into_iter().collect();
        text += &format!("  not run     {} bars: {}\n", not_run.len(), whys.join(", "));
    }
    text
}

/// The exit code: 1 if a bar was missed, 3 if one could not be judged, otherwise 0.
pub(crate) fn exit_code(outcomes: &[BarOutcome]) -> u8 {
    let any = |verdict| outcomes.iter().any(|outcome| outcome.verdict == verdict);
    match (any(Verdict::Missed), any(Verdict::Unmeasured)) {
        (true, _) => 1,
        (false, true) => 3,
        (false, false) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::series::{Floors, Take};

    const TEXT: &str = r#"
        [[bar]]
        name = "round trip of theirs"
        of = "hand-off/trip/we"
        to = "hand-off/trip/they"
        max = 0.5
        when = "near"
    "#;

    fn series(who: &str, floor: f64, time: f64) -> Series {
        let floors = Some(Floors { before: floor, after: floor, one_core: false });
        let takes = vec![Take { round: 0, floors, samples: vec![time] }];
        Series { takes, ..Series::new("hand-off", "trip", who) }
    }

    fn judge(text: &str, groups: &[&str], all: &[Series]) -> BarOutcome {
        Bars::parse(text).expect("bars").judge(groups, all).remove(0)
    }

    #[test]
    fn a_bar_is_held_up_to_its_maximum_and_missed_above() {
        let at = |time| {
            let all = [series("we", 150.0, time), series("they", 150.0, 100.0)];
            judge(TEXT, &["hand-off"], &all).verdict
        };
        assert_eq!((at(50.0), at(50.1)), (Verdict::Held, Verdict::Missed));
    }

    #[test]
    fn without_near_rounds_there_is_no_verdict() {
        let far = [series("we", 480.0, 1.0), series("they", 480.0, 100.0)];
        let outcome = judge(TEXT, &["hand-off"], &far);
        assert_eq!(outcome.verdict, Verdict::Unmeasured);
        assert!(
            outcome.line().contains("UNMEASURED") && outcome.line().contains("near"),
            "{outcome:?}"
        );
        assert_eq!(exit_code(&[outcome]), 3);
    }

    #[test]
    fn a_missing_series_is_named() {
        let outcome = judge(TEXT, &["hand-off"], &[series("we", 150.0, 1.0)]);
        assert_eq!(outcome.verdict, Verdict::Unmeasured);
        assert!(outcome.line().contains("hand-off/trip/they"), "{outcome:?}");
    }

    #[test]
    fn bars_of_groups_that_were_not_run_are_counted() {
        let outcome = judge(TEXT, &["pool"], &[]);
        assert_eq!(outcome.verdict, Verdict::NotRun);
        let text = text(&[outcome.clone(), outcome.clone()]);
        assert_eq!(text, "  not run     2 bars: hand-off was not run\n");
        assert_eq!(exit_code(&[outcome]), 0);
    }

    #[test]
    fn missed_is_worse_than_unmeasured() {
        let missed =
            judge(TEXT, &["hand-off"], &[series("we", 150.0, 9.0), series("they", 150.0, 1.0)]);
        let unmeasured = judge(TEXT, &["hand-off"], &[]);
        assert_eq!(exit_code(&[unmeasured, missed]), 1);
    }

    #[test]
    fn the_floor_can_be_the_reference() {
        let text = TEXT.replace("hand-off/trip/they", "floor").replace("0.5", "2.5");
        let at = |time| judge(&text, &["hand-off"], &[series("we", 100.0, time)]);
        assert_eq!(at(250.0).verdict, Verdict::Held);
        assert_eq!(at(251.0).verdict, Verdict::Missed);
        assert_eq!(at(300.0).ratio, Some(3.0));
    }

    #[test]
    fn unknown_fields_and_distances_are_errors() {
        assert!(Bars::parse(&TEXT.replace("max", "maximum")).is_err());
        assert!(Bars::parse(&TEXT.replace("near", "nearby")).is_err());
    }
}
