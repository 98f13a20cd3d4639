//! `cenote topic hz`

use serde::Serialize;

use crate::failure::Outcome;
use crate::meter::Reading;
use crate::output::{Output, Page, Report};
use crate::percentile::Percentiles;
use crate::topic::watching::Watching;
use crate::unit;

/// How often something is sent, and how old it is when it can be seen
///
/// Latency is from the stamp of a message (stamp_ns, by either clock) until this program sees it, which
/// looks every 0.2 ms.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    watching: Watching,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        self.watching
            .each(|topic, reading| output.one_of_many(&Rate { topic: topic.to_owned(), reading }))
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
            line += &format!("  {garbled} made no sense");
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
