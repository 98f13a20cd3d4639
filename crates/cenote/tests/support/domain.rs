//! How the tests of images, point clouds and depth images run: in a separate socket directory, and with
//! a child process that reads what it receives.

use std::process::ExitCode;

use cenote::{CopyReason, DepthImage, Image, PointCloud, TensorDescriptor, TensorPool};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};

use super::peer::{Peer, serve};
use super::program::{Role, Test, TestProgram};
use super::{emulated, hex, unhex};

const ROLES: &[Role] = &[
    ("reader", |_| serve(|words| answer(words).unwrap_or_else(|error| error.to_string()))),
    ("pool_maker", |_| serve(|_| make().unwrap_or_else(|error| error.to_string()))),
    ("memory_kinds", |_| serve(|_| memory().unwrap_or_else(|error| error.to_string()))),
];

pub(crate) fn run(what: &'static str, tests: &[&[Test]]) -> ExitCode {
    TestProgram::new(what)
        .roles(ROLES)
        .unavailable(|name| {
            let forks = name.contains("fork") && emulated();
            forks.then_some("the emulator cannot fork a process that has threads")
        })
        // The service thread would make the directory again while the pool of the process is open.
        .finish(TensorPool::close_of_process)
        .run(tests)
}

/// What another process reads by this descriptor.
pub(crate) fn seen_elsewhere(kind: &str, descriptor: &TensorDescriptor) -> String {
    let mut reader = Peer::start("reader");
    let answer = reader.request(&format!("{kind} {}", hex(descriptor.as_bytes())));
    reader.finish();
    answer
}

fn answer(words: &[&str]) -> cenote::Result<String> {
    let descriptor = TensorDescriptor::from_bytes(&unhex(words[1]))?;
    Ok(match words[0] {
        "image" => show_image(&Image::from_descriptor(&descriptor)?)?,
        "cloud" => show_cloud(&PointCloud::from_descriptor(&descriptor)?)?,
        _ => show_depth(&DepthImage::from_descriptor(&descriptor)?)?,
    })
}

fn show_image(image: &Image) -> cenote::Result<String> {
    let (width, height) = (image.width(), image.height());
    let header = format!("{} {} {}", image.frame_id(), image.stamp_ns(), image.seq());
    let pixels = [image.pixel(0, 0)?, image.pixel(width - 1, height - 1)?];
    Ok(format!("{} {width}x{height} {header} {pixels:?} copies {}", image.format(), copied()))
}

fn show_cloud(cloud: &PointCloud) -> cenote::Result<String> {
    let names: Vec<&str> = cloud.fields().iter().map(|field| field.name()).collect();
    let points: Vec<_> = cloud.points().map(|point| (point.xyz().ok(), point.rgb())).collect();
    let header = format!("{} {} {}", cloud.frame_id(), cloud.stamp_ns(), cloud.seq());
    Ok(format!("{} {header} {points:?} copies {}", names.join(","), copied()))
}

fn show_depth(depth: &DepthImage) -> cenote::Result<String> {
    let header = format!("{} {} {}", depth.frame_id(), depth.stamp_ns(), depth.seq());
    let camera = depth.intrinsics().map(|camera| [camera.fx, camera.fy, camera.cx, camera.cy]);
    Ok(format!("{header} {camera:?} {:?} copies {}", depth.depth_at(1, 0), copied()))
}

/// The memory kinds of a new image, cloud and depth image.
fn memory() -> cenote::Result<String> {
    let image = Image::new(5, 3, cenote::PixelFormat::I420)?;
    let cloud = PointCloud::new_xyzrgb(10)?;
    let mut depth = DepthImage::new(4, 4, cenote::DType::U16)?;
    depth.clone().make_mut()?;
    depth.fill(1.0)?;
    let kinds = [image.tensor(), cloud.tensor(), depth.tensor()].map(|tensor| tensor.memory());
    Ok(format!("{kinds:?}"))
}

/// Makes the pool of the process, and returns its name.
fn make() -> cenote::Result<String> {
    let pool = TensorPool::of_process()?;
    let name = pool.name().to_owned();
    // A tensor of the pool is never dropped, because it is in a static.
    static KEPT: std::sync::Mutex<Vec<Image>> = std::sync::Mutex::new(Vec::new());
    KEPT.lock().unwrap().push(Image::new(64, 48, cenote::PixelFormat::Grey)?);
    Ok(name)
}

/// The configuration of property tests: the same cases in every run.
pub(crate) fn cases() -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(1);
    ProptestConfig { rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

/// How many bytes this process has copied so far.
pub(crate) fn copied() -> u64 {
    cenote::copies().iter().map(|copies| copies.bytes).sum()
}

/// How often a copy was made for this reason.
pub(crate) fn copies_for(reason: CopyReason) -> u64 {
    cenote::copies().iter().filter(|copies| copies.reason == reason).map(|c| c.count).sum()
}
