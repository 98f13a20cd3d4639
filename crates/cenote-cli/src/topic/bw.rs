//! `cenote topic bw`

use serde::Serialize;

use crate::failure::Outcome;
use crate::meter::Reading;
use crate::output::{Output, Page, Report};
use crate::topic::watching::Watching;
use crate::unit;

/// How many bytes are sent
///
/// They are the bytes that subscribers get to see. Messages that are gone before they are looked at are taken
/// to be like the others. What crosses the boundary between processes are
/// descriptors of about a hundred bytes: see `cenote why`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    watching: Watching,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        self.watching.each(|topic, reading| {
            output.one_of_many(&Bandwidth { topic: topic.to_owned(), reading })
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
