//! Converts a depth image to a point cloud, and opens the cloud in another process. Only a descriptor is sent, as text; no
//! pixel and no point is copied.

use std::process::Command;
use std::{env, error::Error};

use cenote::{DType, DepthImage, Intrinsics, PointCloud, TensorDescriptor, TensorPool};

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1) {
        None => camera(),
        Some(text) => viewer(&text),
    }
}

/// Makes a depth image of a sloping wall, converts it to points, and starts another process that reads them.
fn camera() -> Result<(), Box<dyn Error>> {
    let mut depth = DepthImage::new(480, 640, DType::U16)?; // millimetres; height first
    depth.set_frame_id("camera_depth")?;
    depth.set_seq(1);
    depth.set_intrinsics(Intrinsics { fx: 525.0, fy: 525.0, cx: 319.5, cy: 239.5 })?;
    for y in 0..480_u16 {
        for x in 0..640 {
            depth.set_depth(x, usize::from(y), 1.0 + f32::from(y) / 100.0)?;
        }
    }
    depth.set_depth(0, 0, None)?; // no measurement
    println!("camera: {:?}", depth.stats()?);

    let cloud = depth.to_point_cloud()?;
    let descriptor = cloud.descriptor()?;
    assert!(cloud.clone().map_mut().is_err(), "a tensor with a descriptor is immutable");
    let text: String = descriptor.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("camera: {} points, described in {} bytes", cloud.len(), descriptor.as_bytes().len());
    let status = Command::new(env::current_exe()?).arg(text).status()?;
    println!("camera: pool {:?}", TensorPool::of_process()?.name());
    status.success().then_some(()).ok_or_else(|| "the viewer failed".into())
}

/// Opens the cloud of a descriptor, and reads it.
fn viewer(text: &str) -> Result<(), Box<dyn Error>> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16);
    let bytes = (0..text.len()).step_by(2).map(byte).collect::<Result<Vec<_>, _>>()?;
    let cloud = PointCloud::from_descriptor(&TensorDescriptor::from_bytes(&bytes)?)?;
    assert_eq!((cloud.len(), cloud.frame_id(), cloud.seq()), (480 * 640 - 1, "camera_depth", 1));

    let mut nearest = f64::INFINITY;
    for point in &cloud {
        nearest = nearest.min(point.xyz()?[2]);
    }
    assert_eq!(nearest, 1.0);
    println!("viewer: {} points of {}, nearest {nearest} m", cloud.len(), cloud.frame_id());
    assert!(cenote::copies().iter().all(|copies| copies.count == 0), "nothing was copied");
    Ok(())
}
