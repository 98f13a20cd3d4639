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
    let mut slow = Slow { held: VecDeque::new(), reporter: Reporter::new() };
    while parent.wants_more() {
        if let Some(image) = topic.recv_timeout(WAIT)? {
            slow.take(image)?;
            thread::sleep(THINKS);
        }
        slow.reporter.report.missed = topic.missed();
        slow.reporter.tell_if_due(parent)?;
    }
    // The camera has ended: what is left is the last, and no time to think.
    while let Some(image) = topic.recv() {
        slow.take(image)?;
    }
    while let Some(image) = slow.held.pop_front() {
        slow.let_go(&image)?;
    }
    slow.reporter.report.missed = topic.missed();
    slow.reporter.tell(parent)
}

struct Slow {
    held: VecDeque<Image>,
    reporter: Reporter,
}

impl Slow {
    fn take(&mut self, image: Image) -> Outcome {
        self.reporter.received(image.stamp_ns(), image.tensor().nbytes());
        self.held.push_back(image);
        if self.held.len() > HOLDS
            && let Some(oldest) = self.held.pop_front()
        {
            self.let_go(&oldest)?;
        }
        Ok(())
    }

    /// It was held while the camera sent many others, and may have died.
    fn let_go(&mut self, image: &Image) -> Outcome {
        let whole = pattern::is_whole(image, image.seq())?;
        self.reporter.report.corrupt.rgb += u64::from(!whole);
        Ok(())
    }
}
