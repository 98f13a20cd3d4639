//! What `hz` and `bw` have in common: reading after reading of one topic.

use std::time::Duration;

use crate::failure::{Failure, Outcome};
use crate::meter::{Meter, Reading};
use crate::topic;

/// How long, and how often
#[derive(Debug, clap::Args)]
pub(crate) struct Watching {
    /// The topic, as in camera.rgb or /camera/rgb
    topic: String,

    /// Seconds between two readings
    #[arg(short, long, default_value_t = 1.0, value_parser = seconds)]
    interval: f64,

    /// End after so many readings; without it, go on until interrupted
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Seconds that a person may want to wait.
pub(crate) fn seconds(given: &str) -> Result<f64, String> {
    let seconds: f64 = given.parse().map_err(|_| "not a number".to_owned())?;
    match (0.01..=86_400.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("it must be from 0.01 to 86400".to_owned()),
    }
}

impl Watching {
    /// Tells each reading. An error if nothing was ever seen.
    pub(crate) fn each(&self, mut tell: impl FnMut(&str, Reading) -> Outcome) -> Outcome {
        let name = topic::find(&self.topic)?.name;
        let mut meter = Meter::new(&name)?;
        let mut seen = 0;
        let mut left = self.count;
        while left != Some(0) {
            meter.watch(Duration::from_secs_f64(self.interval), u64::MAX)?;
            let reading = meter.read();
            seen += reading.messages;
            tell(&name, reading)?;
            left = left.map(|left| left - 1);
        }
        match seen {
            0 => Err(Failure::Silence(format!("nothing was sent on `{name}`"))),
            _ => Ok(()),
        }
    }
}
