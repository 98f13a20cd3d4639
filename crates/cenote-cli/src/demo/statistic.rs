//! A subscriber that looks at every byte of every picture, and of every cloud.

use std::time::Duration;

use cenote::{Image, PointCloud, Topic};

use crate::children::Parent;
use crate::demo::report::Reporter;
use crate::demo::scenery;
use crate::failure::Outcome;
use crate::pattern;

/// How long to wait for a picture before looking whether there is still a parent.
const WAIT: Duration = Duration::from_millis(50);

/// One pixel in so many counts for the brightness.
const SAMPLE: usize = 97;

pub(crate) fn run(parent: &Parent) -> Outcome {
    let mut statistic = Statistic {
        pictures: Topic::new("demo.rgb")?,
        clouds: Topic::new("demo.cloud")?,
        reporter: Reporter::new(),
    };
    statistic.clouds.subscribe()?;
    while parent.wants_more() {
        if let Some(image) = statistic.pictures.recv_timeout(WAIT)? {
            statistic.look_at(&image)?;
        }
        statistic.look_at_clouds()?;
        statistic.reporter.tell_if_due(parent)?;
    }
    // The camera has ended: what is left is the last.
    while let Some(image) = statistic.pictures.recv() {
        statistic.look_at(&image)?;
    }
    statistic.look_at_clouds()?;
    statistic.reporter.tell(parent)
}

struct Statistic {
    pictures: Topic<Image>,
    clouds: Topic<PointCloud>,
    reporter: Reporter,
}

impl Statistic {
    fn look_at(&mut self, image: &Image) -> Outcome {
        self.reporter.received(image.stamp_ns(), image.tensor().nbytes());
        let whole = pattern::is_whole(image, image.seq())?;
        self.reporter.report.corrupt.rgb += u64::from(!whole);
        self.reporter.report.brightness = Some(brightness(image)?);
        self.reporter.report.missed = self.pictures.missed();
        Ok(())
    }

    /// All that are there. They come beside the pictures, of which rate and latency are told.
    fn look_at_clouds(&mut self) -> Outcome {
        while let Some(cloud) = self.clouds.recv() {
            self.reporter.report.bytes_moved += cloud.tensor().nbytes() as u64;
            let whole = scenery::is_cloud_whole(&cloud, cloud.seq())?;
            self.reporter.report.corrupt.cloud += u64::from(!whole);
        }
        Ok(())
    }
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
