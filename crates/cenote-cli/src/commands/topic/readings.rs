//! The arguments and the loop of `hz` and `bw`: one reading of a topic after another.

use std::time::{Duration, Instant};

use crate::argument::seconds;
use crate::commands::topic::presence::{self, Presence};
use crate::failure::{Failure, Outcome};
use crate::measure::meter::{Meter, Reading};

/// How long to measure between two checks for a publisher, while the topic has none.
const PUBLISHER_CHECK: Duration = Duration::from_millis(5);

#[derive(Debug, clap::Args)]
pub(crate) struct ReadingArgs {
    /// The topic: camera.rgb or /camera/rgb
    topic: String,

    /// Seconds between two readings
    #[arg(short, long, default_value_t = 1.0, value_parser = seconds)]
    interval: f64,

    /// Stop after this many readings; without it, run until interrupted
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Stop after this many seconds
    #[arg(short, long, value_parser = seconds)]
    seconds: Option<f64>,

    /// Wait this many seconds for a publisher; without it, a topic without a publisher is an error
    #[arg(short, long, value_parser = seconds)]
    timeout: Option<f64>,
}

impl ReadingArgs {
    /// Calls `print` with each reading. Returns an error if no message was ever read.
    pub(crate) fn each(&self, mut print: impl FnMut(&str, Reading) -> Outcome) -> Outcome {
        // Observes before it checks for a publisher, so that it misses nothing of one that comes in between.
        let meter = Meter::new(&self.topic);
        let mut presence = presence::find(&self.topic, self.timeout)?;
        let (mut meter, name) = (meter?, presence.topic.clone());
        self.await_publisher(&mut meter, &mut presence)?;
        let (mut messages, mut left, start) = (0, self.count, Instant::now());
        while left != Some(0)
            && let Some(time) = self.next_interval(start)
        {
            meter.watch(time, |publishers| presence.update(publishers));
            let reading = meter.read();
            messages += reading.messages;
            print(&name, reading)?;
            left = left.map(|left| left - 1);
        }
        match messages {
            0 => Err(Failure::TimedOut(format!("nothing was sent on `{name}`"))),
            _ => Ok(()),
        }
    }

    /// Waits for a publisher if there is a timeout. The time until it comes is not part of a reading.
    fn await_publisher(&self, meter: &mut Meter, presence: &mut Presence) -> Outcome {
        let start = Instant::now();
        while let Some(timeout) = self.timeout.filter(|_| !presence.was_published) {
            if start.elapsed().as_secs_f64() > timeout {
                let text = format!("topic `{}` had no publisher for {timeout} s", presence.topic);
                return Err(Failure::TimedOut(text));
            }
            meter.watch(PUBLISHER_CHECK, |publishers| presence.update(publishers));
            meter.restart_clock();
        }
        Ok(())
    }

    /// The length of the next reading; `None` if the time is over.
    fn next_interval(&self, start: Instant) -> Option<Duration> {
        let interval = Duration::from_secs_f64(self.interval);
        let Some(seconds) = self.seconds.map(Duration::from_secs_f64) else {
            return Some(interval);
        };
        let left = seconds.saturating_sub(start.elapsed());
        (!left.is_zero()).then(|| interval.min(left))
    }
}
