//! A subscriber that takes its time, and holds on to what it got.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use cenote::{Image, Topic};

use crate::children::Parent;
use crate::demo::report::Reporter;
use crate::failure::Outcome;
use crate::pattern;

/// How many pictures it holds.
const HOLDS: usize = 4;

/// How long it thinks about each.
const THINKS: Duration = Duration::from_millis(60);

/// How long to wait for a picture before looking whether there is still a parent.
const WAIT: Duration = Duration::from_millis(50);

pub(crate) fn run(parent: &Parent) -> Outcome {
    let topic: Topic<Image> = Topic::new("demo.rgb")?;
    let mut held: VecDeque<Image> = VecDeque::new();
    let mut reporter = Reporter::new();
    while parent.wants_more() {
        if let Some(image) = topic.recv_timeout(WAIT)? {
            reporter.received(image.stamp_ns(), image.tensor().nbytes());
            held.push_back(image);
            thread::sleep(THINKS);
        }
        if held.len() > HOLDS
            && let Some(oldest) = held.pop_front()
        {
            // It was held while the camera sent many others, and may have died.
            let whole = pattern::is_whole(&oldest, oldest.seq())?;
            reporter.report.corrupt += u64::from(!whole);
        }
        reporter.report.missed = topic.missed();
        reporter.tell_if_due(parent)?;
    }
    reporter.tell(parent)
}
