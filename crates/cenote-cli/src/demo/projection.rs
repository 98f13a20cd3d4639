//! A stage: depth images become point clouds, which are sent on.

use std::time::Duration;

use cenote::{DepthImage, PointCloud, Topic};

use crate::children::Parent;
use crate::clock;
use crate::demo::report::Reporter;
use crate::demo::scenery;
use crate::failure::Outcome;

/// How long to wait for a depth image before looking whether there is still a parent.
const WAIT: Duration = Duration::from_millis(50);

pub(crate) fn run(parent: &Parent) -> Outcome {
    let depths: Topic<DepthImage> = Topic::new("demo.depth")?;
    let points: Topic<PointCloud> = Topic::new("demo.points")?;
    points.advertise()?;
    let mut reporter = Reporter::new();
    while parent.wants_more() {
        if let Some(depth) = depths.recv_timeout(WAIT)? {
            project(&depth, &points, &mut reporter)?;
        }
        reporter.report.missed = depths.missed();
        reporter.tell_if_due(parent)?;
    }
    // The camera has ended: what is left is the last.
    while let Some(depth) = depths.recv() {
        project(&depth, &points, &mut reporter)?;
    }
    reporter.report.missed = depths.missed();
    reporter.tell(parent)
}

fn project(depth: &DepthImage, points: &Topic<PointCloud>, reporter: &mut Reporter) -> Outcome {
    reporter.received(depth.stamp_ns(), depth.tensor().nbytes());
    let whole = scenery::is_depth_whole(depth, depth.seq())?;
    reporter.report.corrupt.depth += u64::from(!whole);
    let mut cloud = depth.to_point_cloud()?;
    cloud.set_stamp_ns(clock::now_ns());
    points.send(&cloud)?;
    reporter.report.sent += 1;
    Ok(())
}
