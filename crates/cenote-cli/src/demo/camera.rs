//! The camera: a picture, a depth image and a point cloud, 60 times a second.

use std::thread;
use std::time::{Duration, Instant};

use cenote::{DType, DepthImage, Image, Intrinsics, PixelFormat, PointCloud, TensorPool, Topic};

use crate::children::Parent;
use crate::clock;
use crate::demo::report::{Lease, Reporter};
use crate::demo::scenery;
use crate::failure::Outcome;
use crate::pattern::{self, Size};

/// Sixty frames a second.
const PERIOD: Duration = Duration::from_nanos(16_666_667);

/// Depth images are so much smaller than pictures, in each direction.
const COARSER: usize = 3;

const POINTS: usize = 4096;

/// One frame in so many is wrong, if that is wanted: a picture first, then a depth image, then a cloud.
const SPOILED: u64 = 5;

pub(crate) fn run(parent: &Parent, size: Size, spoil: bool) -> Outcome {
    let camera = Camera::new(size, spoil)?;
    let mut reporter = Reporter::new();
    let start = Instant::now();
    for number in 0.. {
        let due = PERIOD * number;
        thread::sleep(due.saturating_sub(start.elapsed()));
        if !parent.wants_more() {
            break;
        }
        camera.send(number.into())?;
        reporter.report.sent += 1;
        if reporter.is_due() {
            reporter.report.leases = camera.leases()?;
            reporter.report.bytes_reserved = camera.bytes_reserved()?;
            reporter.tell(parent)?;
        }
    }
    reporter.tell(parent)
}

struct Camera {
    size: Size,
    /// Get a byte wrong now and then.
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
        pattern::draw(&mut image, number)?;
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

    fn spoils(&self, number: u64, which: u64) -> bool {
        self.spoil && number % SPOILED == which
    }

    fn make_depth(&self, number: u64) -> Outcome<DepthImage> {
        let (width, height) = (self.size.width / COARSER, self.size.height / COARSER);
        let mut depth = DepthImage::new_in(self.depth.pool()?, height, width, DType::U16)?;
        scenery::draw_depth(&mut depth, number)?;
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
        scenery::draw_cloud(&mut cloud, number)?;
        if self.spoils(number, 2) {
            cloud.map_mut()?.as_mut_slice::<f32>()?[0] += 0.5;
        }
        cloud.set_seq(number);
        Ok(cloud)
    }

    /// What others hold of the pictures.
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
