//! What a group found: series, and facts that are no times of one operation.

use serde::{Deserialize, Serialize};

use crate::series::Series;

/// One number, with what it is of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Fact {
    /// What it is about.
    pub(crate) group: &'static str,
    /// Which number.
    pub(crate) what: String,
    /// The number.
    pub(crate) value: f64,
    /// Of what.
    pub(crate) unit: &'static str,
    /// Where it comes from.
    pub(crate) from: String,
}

/// A package that was compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
}

/// All that a group found.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Found {
    /// Times.
    pub(crate) series: Vec<Series>,
    /// Others.
    #[serde(skip)]
    pub(crate) facts: Vec<Fact>,
    /// Of packages that only the group knows.
    #[serde(default)]
    pub(crate) versions: Vec<Version>,
}

impl From<Vec<Series>> for Found {
    fn from(series: Vec<Series>) -> Found {
        Found { series, ..Found::default() }
    }
}

impl Found {
    /// Adds what another group found.
    pub(crate) fn extend(&mut self, other: Found) {
        self.series.extend(other.series);
        self.facts.extend(other.facts);
        self.versions.extend(other.versions);
    }
}
