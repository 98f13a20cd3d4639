//! The camera: a picture, a depth image and a point cloud, 60 times a second.

use std::thread;
use std::time::{Duration, Instant};

use cenote::{DType, DepthImage, Image, Intrinsics, PixelFormat, PointCloud, TensorPool, Topic};

use crate::children::Parent;
use crate::clock;
use crate::demo::report::{Lease, Reporter};
use crate::failure::Outcome;
use crate::pattern::{self, Size};

/// Sixty frames a second.
const PERIOD: Duration = Duration::from_nanos(16_666_667);

/// Depth images are so much smaller than pictures, in each direction.
const COARSER: usize = 3;

const POINTS: usize = 4096;

/// One frame in so many is wrong, if that is wanted.
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
        if self.spoil && number.is_multiple_of(SPOILED) {
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

    /// A slope that comes nearer.
    #[allow(clippy::cast_possible_truncation, reason = "it is below 2^16")]
    fn make_depth(&self, number: u64) -> Outcome<DepthImage> {
        let (width, height) = (self.size.width / COARSER, self.size.height / COARSER);
        let mut depth = DepthImage::new_in(self.depth.pool()?, height, width, DType::U16)?;
        let nearer = number % 1000;
        let mut map = depth.map_mut()?;
        for (y, row) in map.as_mut_slice::<u16>()?.chunks_exact_mut(width).enumerate() {
            row.fill((1000 + nearer + y as u64 % 4096) as u16);
        }
        drop(map);
        let centre = |side: usize| f64::from(u32::try_from(side / 2).unwrap_or(0));
        let (cx, cy) = (centre(width), centre(height));
        depth.set_intrinsics(Intrinsics { fx: 500.0, fy: 500.0, cx, cy })?;
        depth.set_seq(number);
        Ok(depth)
    }

    /// A ring that turns.
    #[allow(clippy::cast_precision_loss, reason = "a few thousand points")]
    fn make_cloud(&self, number: u64) -> Outcome<PointCloud> {
        let mut cloud = PointCloud::new_in(self.cloud.pool()?, POINTS, &PointCloud::xyz_fields())?;
        let mut map = cloud.map_mut()?;
        for (at, point) in map.as_mut_slice::<f32>()?.chunks_exact_mut(3).enumerate() {
            let angle = (at as f32 + (number % 360) as f32) * std::f32::consts::TAU / 360.0;
            point.copy_from_slice(&[angle.cos(), angle.sin(), at as f32 / POINTS as f32]);
        }
        drop(map);
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
