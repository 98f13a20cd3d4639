//! Percentiles of the times of one operation.

use std::time::Instant;

use serde::Serialize;

/// Percentiles of samples, in nanoseconds. No outlier is removed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// The number of samples.
    pub(crate) count: usize,
    /// The median.
    pub(crate) p50: f64,
    /// The 99th percentile.
    pub(crate) p99: f64,
    /// The 99.9th percentile.
    pub(crate) p999: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Summary {
    /// Summarises samples; `None` if there are none.
    pub(crate) fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let max = *sorted.last()?;
        let at = |share| percentile(&sorted, share);
        Some(Summary { count: sorted.len(), p50: at(0.5), p99: at(0.99), p999: at(0.999), max })
    }
}

/// The percentile by nearest rank: the smallest sample such that at least this share of all samples is not larger.
/// `sorted` must not be empty.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a length")]
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The median; `None` if there are no samples.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    Summary::of(samples).map(|summary| summary.p50)
}

/// Nanoseconds since then.
pub(crate) fn nanos_since(began: Instant) -> f64 {
    began.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let thousand: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let summary = Summary::of(&thousand).expect("samples");
        assert_eq!((summary.p50, summary.p99, summary.p999), (500.0, 990.0, 999.0));
        assert_eq!((summary.max, summary.count), (1000.0, 1000));
    }

    #[test]
    fn one_sample_is_every_percentile() {
        let summary = Summary::of(&[7.0]).expect("a sample");
        assert_eq!((summary.p50, summary.p99, summary.p999, summary.max), (7.0, 7.0, 7.0, 7.0));
    }

    #[test]
    fn a_single_outlier_is_the_maximum_and_no_percentile() {
        let mut samples = vec![1.0; 2000];
        samples[3] = 1e9;
        let summary = Summary::of(&samples).expect("samples");
        assert_eq!((summary.p999, summary.max), (1.0, 1e9));
    }

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(median(&[]), None);
    }
}
