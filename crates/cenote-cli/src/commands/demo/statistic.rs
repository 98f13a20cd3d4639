//! A subscriber that checks every byte of every image and of every cloud.

use std::time::Duration;

use cenote::{Image, PointCloud, Topic};

use crate::commands::demo::report::Reporter;
use crate::commands::demo::test_data;
use crate::failure::Outcome;
use crate::process::child::Parent;
use crate::test_pattern;

/// How long to wait for an image before checking the connection to the parent.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(50);

/// One value in this many counts for the brightness.
const SAMPLE_STEP: usize = 97;

pub(crate) fn run(parent: &Parent) -> Outcome {
    let mut statistic = Statistic {
        images: Topic::new("demo.rgb")?,
        clouds: Topic::new("demo.cloud")?,
        reporter: Reporter::new(),
    };
    statistic.clouds.subscribe()?;
    while parent.is_connected() {
        if let Some(image) = statistic.images.recv_timeout(RECEIVE_TIMEOUT)? {
            statistic.check_image(&image)?;
        }
        statistic.check_clouds()?;
        statistic.reporter.send_if_due(parent)?;
    }
    // The camera has ended. Receives its last messages.
    while let Some(image) = statistic.images.recv() {
        statistic.check_image(&image)?;
    }
    statistic.check_clouds()?;
    statistic.reporter.send(parent)
}

struct Statistic {
    images: Topic<Image>,
    clouds: Topic<PointCloud>,
    reporter: Reporter,
}

impl Statistic {
    fn check_image(&mut self, image: &Image) -> Outcome {
        self.reporter.received(image.stamp_ns(), image.tensor().nbytes());
        let intact = test_pattern::is_intact(image, image.seq())?;
        self.reporter.report.corrupt.rgb += u64::from(!intact);
        self.reporter.report.brightness = Some(brightness(image)?);
        self.reporter.report.missed = self.images.missed();
        Ok(())
    }

    /// Checks the clouds that have arrived. Rate and latency count images only.
    fn check_clouds(&mut self) -> Outcome {
        while let Some(cloud) = self.clouds.recv() {
            self.reporter.report.bytes_moved += cloud.tensor().nbytes() as u64;
            let intact = test_data::is_cloud_intact(&cloud, cloud.seq())?;
            self.reporter.report.corrupt.cloud += u64::from(!intact);
        }
        Ok(())
    }
}

/// The mean of a sample of the image's values.
#[allow(clippy::cast_precision_loss, reason = "it is a mean")]
fn brightness(image: &Image) -> Outcome<f64> {
    let map = image.map()?;
    let values = map.runs().flatten().step_by(SAMPLE_STEP);
    let (sum, count) =
        values.fold((0_u64, 0_u64), |(sum, count), value| (sum + u64::from(*value), count + 1));
    Ok(sum as f64 / count.max(1) as f64)
}
