//! `cenote topic bw`

use serde::Serialize;

use crate::commands::topic::readings::ReadingArgs;
use crate::failure::Outcome;
use crate::measure::meter::Reading;
use crate::output::unit;
use crate::output::{Output, Page, Report};

/// Measure the bandwidth of a topic
///
/// This is the size of the messages. Missed messages count with the mean size of the others. What is copied is
/// usually only a descriptor of about a hundred bytes for each message: see `cenote why`.
///
/// Example: cenote topic bw camera.rgb --seconds 10
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    readings: ReadingArgs,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        self.readings.each(|topic, reading| {
            output.report_line(&Bandwidth { topic: topic.to_owned(), reading })
        })
    }
}

#[derive(Debug, Serialize)]
struct Bandwidth {
    topic: String,
    #[serde(flatten)]
    reading: Reading,
}

impl Report for Bandwidth {
    fn write(&self, page: &mut Page) {
        let Reading { bytes, messages, missed, bytes_per_second, .. } = self.reading;
        let mean = bytes.checked_div(messages).unwrap_or(0);
        let (rate, mean) = (unit::bandwidth(bytes_per_second), unit::bytes(mean));
        page.line(format!("{rate} ({messages} seen, {missed} missed, {mean} each)"));
    }
}
