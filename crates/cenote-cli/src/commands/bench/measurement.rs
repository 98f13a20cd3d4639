//! The results of `cenote bench`.

use serde::{Deserialize, Serialize};

use crate::measure::percentiles::Percentiles;
use crate::output::unit;
use crate::output::{Page, Report, Table};

/// All measurements.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(super) size: String,
    pub(super) frame_bytes: u64,
    pub(super) results: Vec<Measurement>,
}

/// The duration of one operation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(super) what: String,
    pub(super) times: u64,
    pub(super) time: Percentiles,
}

impl Report for Measured {
    fn write(&self, page: &mut Page) {
        page.line(format!("a frame of {} RGB, {}", self.size, unit::bytes(self.frame_bytes)));
        let mut table = Table::new(&["WHAT", ">TIMES", ">p50 / p99"]);
        for Measurement { what, times, time } in &self.results {
            table.row([what.clone(), times.to_string(), Percentiles::show(Some(time))]);
        }
        page.table(&table, "nothing was measured");
    }
}
