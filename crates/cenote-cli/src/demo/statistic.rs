//! A subscriber that looks at every byte of every picture.

use std::time::Duration;

use cenote::{Image, Topic};

use crate::children::Parent;
use crate::demo::report::Reporter;
use crate::failure::Outcome;
use crate::pattern;

/// How long to wait for a picture before looking whether there is still a parent.
const WAIT: Duration = Duration::from_millis(50);

/// One pixel in so many counts for the brightness.
const SAMPLE: usize = 97;

pub(crate) fn run(parent: &Parent) -> Outcome {
    let topic: Topic<Image> = Topic::new("demo.rgb")?;
    let mut reporter = Reporter::new();
    while parent.wants_more() {
        if let Some(image) = topic.recv_timeout(WAIT)? {
            reporter.received(image.stamp_ns(), image.tensor().nbytes());
            let whole = pattern::is_whole(&image, image.seq())?;
            reporter.report.corrupt += u64::from(!whole);
            reporter.report.brightness = Some(brightness(&image)?);
        }
        reporter.report.missed = topic.missed();
        reporter.tell_if_due(parent)?;
    }
    reporter.tell(parent)
}

/// The mean of a sample of the picture's values.
#[allow(clippy::cast_precision_loss, reason = "it is a mean")]
fn brightness(image: &Image) -> Outcome<f64> {
    let map = image.map()?;
    let values = map.runs().flatten().step_by(SAMPLE);
    let (sum, count) =
        values.fold((0_u64, 0_u64), |(sum, count), value| (sum + u64::from(*value), count + 1));
    Ok(sum as f64 / count.max(1) as f64)
}
