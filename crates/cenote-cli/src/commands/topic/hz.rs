//! `cenote topic hz`

use serde::Serialize;

use crate::commands::topic::readings::ReadingArgs;
use crate::failure::Outcome;
use crate::measure::meter::Reading;
use crate::measure::percentiles::Percentiles;
use crate::output::unit;
use crate::output::{Output, Page, Report};

/// Measure the rate and the latency of a topic
///
/// Latency is the time from the stamp of a message (stamp_ns, of the monotonic or the real-time clock) until this
/// program reads it. It polls every 0.2 ms.
///
/// Example: cenote topic hz camera.rgb
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    readings: ReadingArgs,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        self.readings
            .each(|topic, reading| output.report_line(&Rate { topic: topic.to_owned(), reading }))
    }
}

#[derive(Debug, Serialize)]
struct Rate {
    topic: String,
    #[serde(flatten)]
    reading: Reading,
}

impl Report for Rate {
    fn write(&self, page: &mut Page) {
        let Reading { hz, messages, missed, garbled, period_ms, latency, .. } = &self.reading;
        let mut line = format!("{} ({messages} seen, {missed} missed)", unit::rate(*hz));
        if *garbled > 0 {
            line += &format!("  {garbled} invalid");
        }
        if let Some(period) = period_ms {
            let (min, max, deviation) = (period.min, period.max, period.deviation);
            line += &format!("  period {min:.2} to {max:.2} ms, deviation {deviation:.2} ms");
        }
        if latency.is_some() {
            line += &format!("  latency p50 / p99 {}", Percentiles::show(latency.as_ref()));
        }
        page.line(line);
    }
}
