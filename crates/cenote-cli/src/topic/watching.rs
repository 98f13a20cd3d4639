//! What `hz` and `bw` have in common: reading after reading of one topic.

use std::time::{Duration, Instant};

use cenote::PublisherInfo;

use crate::failure::{self, Failure, Outcome};
use crate::meter::{Meter, Reading};
use crate::output::NO_ANSWER;
use crate::topic;
use crate::unit;

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

    /// End after so many seconds
    #[arg(short, long, value_parser = seconds)]
    seconds: Option<f64>,
}

/// Seconds that a person may want to wait.
pub(crate) fn seconds(given: &str) -> Result<f64, String> {
    unit::within(0.01..=86_400.0, given)
}

impl Watching {
    /// Tells each reading. An error if nothing was ever seen.
    pub(crate) fn each(&self, mut tell: impl FnMut(&str, Reading) -> Outcome) -> Outcome {
        let (name, mut presence) = find(&self.topic)?;
        let mut meter = Meter::new(&name)?;
        let (mut seen, mut left, start) = (0, self.count, Instant::now());
        while left != Some(0)
            && let Some(time) = self.next_interval(start)
        {
            meter.watch(time);
            presence.note(meter.publishers());
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

    /// How long to look until the next reading; `None` if the time is over.
    fn next_interval(&self, start: Instant) -> Option<Duration> {
        let interval = Duration::from_secs_f64(self.interval);
        let Some(seconds) = self.seconds.map(Duration::from_secs_f64) else {
            return Some(interval);
        };
        let left = seconds.saturating_sub(start.elapsed());
        (!left.is_zero()).then(|| interval.min(left))
    }
}

/// The name of a topic that somebody publishes, who may be stopped: that is said.
pub(crate) fn find(given: &str) -> Outcome<(String, Presence)> {
    let found = topic::find(given)?;
    let somebody = found.publishers.iter().any(|publisher| publisher.carries.is_some());
    for publisher in found.publishers.iter().filter(|one| !somebody && !one.closed) {
        let PublisherInfo { program, pid, .. } = publisher;
        let name = &found.name;
        failure::say(&format!("`{name}` is published by {program} (pid {pid}), which {NO_ANSWER}"));
    }
    Ok((found.name.clone(), Presence { topic: found.name, somebody }))
}

/// Whether anybody publishes. Those who wait are told when nobody does any more, and when somebody does again.
#[derive(Debug)]
pub(crate) struct Presence {
    topic: String,
    somebody: bool,
}

impl Presence {
    pub(crate) fn note(&mut self, publishers: usize) {
        let somebody = publishers > 0;
        if somebody != std::mem::replace(&mut self.somebody, somebody) {
            let topic = &self.topic;
            match somebody {
                true => failure::say(&format!("somebody publishes `{topic}` again")),
                false => failure::say(&format!(
                    "nobody who answers publishes `{topic}` any more; waiting"
                )),
            }
        }
    }
}
