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
    let mut slow = Slow::new();
    while parent.wants_more() {
        if let Some(image) = topic.recv_timeout(WAIT)? {
            slow.take(image)?;
            thread::sleep(THINKS);
        }
        slow.reporter.report.missed = topic.missed();
        slow.reporter.tell_if_due(parent)?;
    }
    // The camera has ended: what is left is the last.
    slow.finish(std::iter::from_fn(|| topic.recv()))?;
    slow.reporter.report.missed = topic.missed();
    slow.reporter.tell(parent)
}

struct Slow {
    held: VecDeque<Image>,
    reporter: Reporter,
}

impl Slow {
    fn new() -> Slow {
        Slow { held: VecDeque::new(), reporter: Reporter::new() }
    }

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

    /// Takes what is left, without time to think, and lets go of all.
    fn finish(&mut self, left: impl Iterator<Item = Image>) -> Outcome {
        for image in left {
            self.take(image)?;
        }
        while let Some(image) = self.held.pop_front() {
            self.let_go(&image)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use cenote::PixelFormat;

    fn picture(number: u64, drawn: u64) -> Image {
        let mut image = Image::new(16, 16, PixelFormat::Rgb8).unwrap();
        pattern::draw(&mut image, drawn).unwrap();
        image.set_seq(number);
        image
    }

    #[test]
    fn all_that_was_received_is_looked_at_in_the_end() {
        let mut slow = Slow::new();
        (0..3).for_each(|number| slow.take(picture(number, number)).unwrap());
        slow.take(picture(3, 4)).unwrap();
        assert_eq!((slow.held.len(), slow.reporter.report.corrupt.rgb), (HOLDS, 0), "so far");
        slow.finish([picture(4, 4), picture(5, 6)].into_iter()).unwrap();
        assert_eq!((slow.held.len(), slow.reporter.report.received), (0, 6));
        assert_eq!(slow.reporter.report.corrupt.rgb, 2);
    }
}
