//! What `hz` and `bw` have in common: reading after reading of one topic.

use std::time::{Duration, Instant};

use cenote::{PublisherInfo, Tensor, Topic};

use crate::failure::{self, Failure, Outcome};
use crate::meter::{Meter, Reading};
use crate::output::NO_ANSWER;
use crate::topic;
use crate::unit;

/// How long to look before it is looked whether somebody has come.
const NAP: Duration = Duration::from_millis(5);

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

    /// Wait so many seconds for somebody to publish it; without it, that nobody does is an error
    #[arg(short, long, value_parser = seconds)]
    timeout: Option<f64>,
}

/// Seconds that a person may want to wait.
pub(crate) fn seconds(given: &str) -> Result<f64, String> {
    unit::within(0.01..=86_400.0, given)
}

impl Watching {
    /// Tells each reading. An error if nothing was ever seen.
    pub(crate) fn each(&self, mut tell: impl FnMut(&str, Reading) -> Outcome) -> Outcome {
        // It looks before it is known whether anybody publishes, so that it misses nothing of who comes.
        let meter = Meter::new(&self.topic);
        let mut presence = find(&self.topic, self.timeout)?;
        let (mut meter, name) = (meter?, presence.topic.clone());
        self.await_publisher(&mut meter, &mut presence)?;
        let (mut seen, mut left, start) = (0, self.count, Instant::now());
        while left != Some(0)
            && let Some(time) = self.next_interval(start)
        {
            meter.watch(time, |publishers| presence.note(publishers));
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

    /// Waits for one, if it is to; the time that takes is no part of a reading.
    fn await_publisher(&self, meter: &mut Meter, presence: &mut Presence) -> Outcome {
        let start = Instant::now();
        while let Some(timeout) = self.timeout.filter(|_| !presence.met) {
            if start.elapsed().as_secs_f64() > timeout {
                let text = format!("nobody published `{}` for {timeout} s", presence.topic);
                return Err(Failure::Silence(text));
            }
            meter.watch(NAP, |publishers| presence.note(publishers));
            meter.begin();
        }
        Ok(())
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

/// A topic that somebody publishes, who may be stopped: that is said. With a timeout somebody may yet come.
pub(crate) fn find(given: &str, timeout: Option<f64>) -> Outcome<Presence> {
    let found = match topic::find(given) {
        Err(Failure::NotFound(_)) if timeout.is_some() => {
            let topic: Topic<Tensor> = Topic::new(given)?;
            let name = topic.name().to_owned();
            failure::say(&format!("nobody publishes `{name}` yet; waiting"));
            return Ok(Presence { topic: name, met: false, somebody: false });
        }
        found => found?,
    };
    let somebody = found.publishers.iter().any(|publisher| publisher.carries.is_some());
    for publisher in found.publishers.iter().filter(|one| !somebody && !one.closed) {
        let PublisherInfo { program, pid, .. } = publisher;
        let name = &found.name;
        failure::say(&format!("`{name}` is published by {program} (pid {pid}), which {NO_ANSWER}"));
    }
    Ok(Presence { topic: found.name, met: true, somebody })
}

/// Whether anybody publishes. Those who wait are told when nobody does any more, and when somebody does again.
#[derive(Debug)]
pub(crate) struct Presence {
    pub(crate) topic: String,
    /// Whether anybody ever did.
    met: bool,
    somebody: bool,
}

impl Presence {
    pub(crate) fn note(&mut self, publishers: usize) {
        let (somebody, topic) = (publishers > 0, &self.topic);
        let met = self.met;
        self.met |= somebody;
        if somebody != std::mem::replace(&mut self.somebody, somebody) {
            match somebody {
                true if met => failure::say(&format!("somebody publishes `{topic}` again")),
                true => failure::say(&format!("somebody publishes `{topic}`")),
                false => failure::say(&format!(
                    "nobody who answers publishes `{topic}` any more; waiting"
                )),
            }
        }
    }
}
