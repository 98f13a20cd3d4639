//! The camera: sends an image, a depth image and a point cloud, 60 times a second.

use std::thread;
use std::time::{Duration, Instant};

use cenote::{DType, DepthImage, Image, Intrinsics, PixelFormat, PointCloud, TensorPool, Topic};

use crate::commands::demo::report::{Lease, Reporter};
use crate::commands::demo::test_data;
use crate::failure::Outcome;
use crate::measure::clock;
use crate::process::child::Parent;
use crate::test_pattern::{self, Size};

/// Sixty frames a second.
const PERIOD: Duration = Duration::from_nanos(16_666_667);

/// How much smaller a depth image is than the image, in each direction.
const DEPTH_SCALE: usize = 3;

/// The points of a cloud.
const POINTS: usize = 4096;

/// With `--spoil`, every fifth image, depth image and cloud is wrong, each in another frame.
const SPOIL_PERIOD: u64 = 5;

pub(crate) fn run(parent: &Parent, size: Size, spoil: bool) -> Outcome {
    let camera = Camera::new(size, spoil)?;
    let mut reporter = Reporter::new();
    let start = Instant::now();
    for number in 0.. {
        let due = PERIOD * number;
        thread::sleep(due.saturating_sub(start.elapsed()));
        if !parent.is_connected() {
            break;
        }
        camera.send(number.into())?;
        reporter.report.sent += 1;
        if reporter.is_due() {
            reporter.report.leases = camera.leases()?;
            reporter.report.bytes_reserved = camera.bytes_reserved()?;
            reporter.send(parent)?;
        }
    }
    reporter.send(parent)
}

struct Camera {
    size: Size,
    /// Change a value in some messages.
    spoil: bool,
    rgb: Topic<Image>,
    depth: Topic<DepthImage>,
    cloud: Topic<PointCloud>,
}

impl Camera {
    fn new(size: Size, spoil: bool) -> Outcome<Camera> {
        let (rgb, depth) = (Topic::new("demo.rgb")?, Topic::new("demo.depth")?);
        Ok(Camera { size, spoil, rgb, depth, cloud: Topic::new("demo.cloud")? })
    }

    fn send(&self, number: u64) -> Outcome {
        let mut depth = self.make_depth(number)?;
        let mut cloud = self.make_cloud(number)?;
        let mut image = self.rgb.image(self.size.width, self.size.height, PixelFormat::Rgb8)?;
        test_pattern::draw(&mut image, number)?;
        if self.spoils(number, 0) {
            let [red, green, blue] = image.pixel_as::<[u8; 3]>(1, 1)?;
            image.set_pixel(1, 1, &[red ^ 1, green, blue])?;
        }
        image.set_seq(number);
        image.set_stamp_ns(clock::now_ns());
        self.rgb.send(&image)?;
        depth.set_stamp_ns(clock::now_ns());
        self.depth.send(&depth)?;
        cloud.set_stamp_ns(clock::now_ns());
        self.cloud.send(&cloud)?;
        Ok(())
    }

    /// Whether to spoil message `which` of a frame: 0 is the image, 1 the depth image, 2 the cloud.
    fn spoils(&self, number: u64, which: u64) -> bool {
        self.spoil && number % SPOIL_PERIOD == which
    }

    fn make_depth(&self, number: u64) -> Outcome<DepthImage> {
        let (width, height) = (self.size.width / DEPTH_SCALE, self.size.height / DEPTH_SCALE);
        let mut depth = DepthImage::new_in(self.depth.pool()?, height, width, DType::U16)?;
        test_data::draw_depth(&mut depth, number)?;
        if self.spoils(number, 1) {
            depth.map_mut()?.as_mut_slice::<u16>()?[0] ^= 1;
        }
        let centre = |side: usize| f64::from(u32::try_from(side / 2).unwrap_or(0));
        let (cx, cy) = (centre(width), centre(height));
        depth.set_intrinsics(Intrinsics { fx: 500.0, fy: 500.0, cx, cy })?;
        depth.set_seq(number);
        Ok(depth)
    }

    fn make_cloud(&self, number: u64) -> Outcome<PointCloud> {
        let mut cloud = PointCloud::new_in(self.cloud.pool()?, POINTS, &PointCloud::xyz_fields())?;
        test_data::draw_cloud(&mut cloud, number)?;
        if self.spoils(number, 2) {
            cloud.map_mut()?.as_mut_slice::<f32>()?[0] += 0.5;
        }
        cloud.set_seq(number);
        Ok(cloud)
    }

    /// The leases of other processes on images.
    fn leases(&self) -> Outcome<Vec<Lease>> {
        let own = std::process::id().cast_signed();
        let holders = self.rgb.pool()?.holders()?.into_iter().filter(|holder| holder.pid != own);
        Ok(holders.map(|holder| Lease { pid: holder.pid, slots: holder.slots }).collect())
    }

    fn bytes_reserved(&self) -> Outcome<u64> {
        let pools = [self.rgb.pool()?, self.depth.pool()?, self.cloud.pool()?];
        let reserved = |pool: &TensorPool| pool.stats().map(|stats| stats.bytes_reserved as u64);
        Ok(pools.into_iter().map(reserved).sum::<cenote::Result<u64>>()?)
    }
}
