//! Percentiles of durations.

use serde::{Deserialize, Serialize};

use crate::output::unit;

/// Percentiles of many durations.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq)]
pub(crate) struct Percentiles {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}

impl Percentiles {
    /// From durations in nanoseconds; `None` if there are none.
    pub(crate) fn of(mut nanos: Vec<u64>) -> Option<Percentiles> {
        nanos.sort_unstable();
        let last = nanos.len().checked_sub(1)?;
        // The nearest rank.
        let rank = |percent: usize| (nanos.len() * percent).div_ceil(100).saturating_sub(1);
        let at = |index: usize| micros(nanos[index.min(last)]);
        Some(Percentiles { p50_us: at(rank(50)), p99_us: at(rank(99)), max_us: at(last) })
    }

    /// The median and the 99th percentile: `41.2 µs / 80.1 µs`, or `-`.
    pub(crate) fn show(latency: Option<&Percentiles>) -> String {
        latency.map_or("-".to_owned(), |latency| {
            let show = |micros: f64| unit::nanos(micros * 1000.0);
            format!("{} / {}", show(latency.p50_us), show(latency.p99_us))
        })
    }
}

#[allow(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        assert_eq!(Percentiles::of(Vec::new()), None);
        let found = Percentiles::of((1..=100).rev().map(|n| n * 1000).collect()).unwrap();
        assert_eq!((found.p50_us, found.p99_us, found.max_us), (50.0, 99.0, 100.0));
        let one = Percentiles::of(vec![2000]).unwrap();
        assert_eq!((one.p50_us, one.p99_us, one.max_us), (2.0, 2.0, 2.0));
    }
}
