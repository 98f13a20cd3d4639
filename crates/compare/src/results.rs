//! What a group returns: series of times, and single numbers.

use serde::{Deserialize, Serialize};

use crate::measure::series::Series;

/// One number that is not the time of an operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Fact {
    /// The group that measured it.
    pub(crate) group: &'static str,
    /// What was measured.
    pub(crate) what: String,
    /// The number, in `unit`.
    pub(crate) value: f64,
    /// The unit; empty for a count.
    pub(crate) unit: &'static str,
    /// The measurements that the number is computed from.
    pub(crate) from: String,
}

/// The version of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackageVersion {
    /// The package.
    pub(crate) name: String,
    /// The version.
    pub(crate) version: String,
}

/// All measurements of one or several groups.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Results {
    /// The times of operations.
    pub(crate) series: Vec<Series>,
    /// Other numbers.
    #[serde(skip)]
    pub(crate) facts: Vec<Fact>,
    /// The versions of Python packages; the lock file has those of Rust packages.
    #[serde(default)]
    pub(crate) versions: Vec<PackageVersion>,
}

impl From<Vec<Series>> for Results {
    fn from(series: Vec<Series>) -> Results {
        Results { series, ..Results::default() }
    }
}

impl Results {
    /// Adds the measurements of another group.
    pub(crate) fn extend(&mut self, other: Results) {
        self.series.extend(other.series);
        self.facts.extend(other.facts);
        self.versions.extend(other.versions);
    }
}
