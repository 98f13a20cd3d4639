//! A subscriber that converts depth images to point clouds, and publishes them.

use std::time::Duration;

use cenote::{DepthImage, PointCloud, Topic};

use crate::commands::demo::report::Reporter;
use crate::commands::demo::test_data;
use crate::failure::Outcome;
use crate::measure::clock;
use crate::process::child::Parent;

/// How long to wait for a depth image before checking the connection to the parent.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(50);

pub(crate) fn run(parent: &Parent) -> Outcome {
    let depths: Topic<DepthImage> = Topic::new("demo.depth")?;
    let points: Topic<PointCloud> = Topic::new("demo.points")?;
    points.advertise()?;
    let mut reporter = Reporter::new();
    while parent.is_connected() {
        if let Some(depth) = depths.recv_timeout(RECEIVE_TIMEOUT)? {
            project(&depth, &points, &mut reporter)?;
        }
        reporter.report.missed = depths.missed();
        reporter.send_if_due(parent)?;
    }
    // The camera has ended. Receives its last messages.
    while let Some(depth) = depths.recv() {
        project(&depth, &points, &mut reporter)?;
    }
    reporter.report.missed = depths.missed();
    reporter.send(parent)
}

fn project(depth: &DepthImage, points: &Topic<PointCloud>, reporter: &mut Reporter) -> Outcome {
    reporter.received(depth.stamp_ns(), depth.tensor().nbytes());
    let intact = test_data::is_depth_intact(depth, depth.seq())?;
    reporter.report.corrupt.depth += u64::from(!intact);
    let mut cloud = depth.to_point_cloud()?;
    cloud.set_stamp_ns(clock::now_ns());
    points.send(&cloud)?;
    reporter.report.sent += 1;
    Ok(())
}
