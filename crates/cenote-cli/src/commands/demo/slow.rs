//! A slow subscriber that holds several frames.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use cenote::{Image, Topic};

use crate::commands::demo::report::Reporter;
use crate::failure::Outcome;
use crate::process::child::Parent;
use crate::test_pattern;

/// The number of images that it holds.
const HELD: usize = 4;

/// The time that it takes for each image.
const WORK_TIME: Duration = Duration::from_millis(60);

/// How long to wait for an image before checking the connection to the parent.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(50);

pub(crate) fn run(parent: &Parent) -> Outcome {
    let topic: Topic<Image> = Topic::new("demo.rgb")?;
    let mut slow = SlowSubscriber::new();
    while parent.is_connected() {
        if let Some(image) = topic.recv_timeout(RECEIVE_TIMEOUT)? {
            slow.hold(image)?;
            thread::sleep(WORK_TIME);
        }
        slow.reporter.report.missed = topic.missed();
        slow.reporter.send_if_due(parent)?;
    }
    // The camera has ended. Receives its last messages.
    slow.finish(std::iter::from_fn(|| topic.recv()))?;
    slow.reporter.report.missed = topic.missed();
    slow.reporter.send(parent)
}

struct SlowSubscriber {
    held: VecDeque<Image>,
    reporter: Reporter,
}

impl SlowSubscriber {
    fn new() -> SlowSubscriber {
        SlowSubscriber { held: VecDeque::new(), reporter: Reporter::new() }
    }

    /// Holds an image, and releases the oldest if there are too many.
    fn hold(&mut self, image: Image) -> Outcome {
        self.reporter.received(image.stamp_ns(), image.tensor().nbytes());
        self.held.push_back(image);
        if self.held.len() > HELD
            && let Some(oldest) = self.held.pop_front()
        {
            self.release(&oldest)?;
        }
        Ok(())
    }

    /// Holds the remaining images without delay, then releases all.
    fn finish(&mut self, remaining: impl Iterator<Item = Image>) -> Outcome {
        for image in remaining {
            self.hold(image)?;
        }
        while let Some(image) = self.held.pop_front() {
            self.release(&image)?;
        }
        Ok(())
    }

    /// Checks an image before it is released: meanwhile the camera has sent many others, or has died.
    fn release(&mut self, image: &Image) -> Outcome {
        let intact = test_pattern::is_intact(image, image.seq())?;
        self.reporter.report.corrupt.rgb += u64::from(!intact);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote::PixelFormat;

    fn image(number: u64, drawn: u64) -> Image {
        let mut image = Image::new(16, 16, PixelFormat::Rgb8).unwrap();
        test_pattern::draw(&mut image, drawn).unwrap();
        image.set_seq(number);
        image
    }

    #[test]
    fn every_received_image_is_checked_in_the_end() {
        let mut slow = SlowSubscriber::new();
        (0..3).for_each(|number| slow.hold(image(number, number)).unwrap());
        slow.hold(image(3, 4)).unwrap();
        assert_eq!(
            (slow.held.len(), slow.reporter.report.corrupt.rgb),
            (HELD, 0),
            "images are checked when they are released"
        );
        slow.finish([image(4, 4), image(5, 6)].into_iter()).unwrap();
        assert_eq!((slow.held.len(), slow.reporter.report.received), (0, 6));
        assert_eq!(slow.reporter.report.corrupt.rgb, 2);
    }
}
