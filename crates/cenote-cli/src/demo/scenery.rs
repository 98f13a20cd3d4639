//! What is beside the picture: a depth image and a point cloud, by whose number every value is known.

use cenote::{DepthImage, Error, PointCloud};

/// How far the slope is at its nearest, in millimetres, and the steps of its movement and its height.
const NEAREST: u64 = 1000;
const STEPS: u64 = 1000;
const RISE: u64 = 4096;

/// Makes a depth image (u16) a slope that comes nearer.
pub(crate) fn draw_depth(depth: &mut DepthImage, number: u64) -> Result<(), Error> {
    let width = depth.width();
    let mut map = depth.map_mut()?;
    let rows = map.as_mut_slice::<u16>()?.chunks_exact_mut(width);
    rows.zip(0..).for_each(|(row, y)| row.fill(distance(y, number)));
    Ok(())
}

/// Whether every value of a depth image is that of image `number`.
pub(crate) fn is_depth_whole(depth: &DepthImage, number: u64) -> Result<bool, Error> {
    let map = depth.map()?;
    let mut rows = map.as_slice::<u16>()?.chunks_exact(depth.width()).zip(0..);
    Ok(rows.all(|(row, y)| row.iter().all(|value| *value == distance(y, number))))
}

/// The values of row `y`.
#[allow(clippy::cast_possible_truncation, reason = "it is below 2^16")]
fn distance(y: u64, number: u64) -> u16 {
    (NEAREST + number % STEPS + y % RISE) as u16
}

/// Makes a cloud (x, y, z) a ring that turns.
pub(crate) fn draw_cloud(cloud: &mut PointCloud, number: u64) -> Result<(), Error> {
    let mut map = cloud.map_mut()?;
    let points = map.as_mut_slice::<f32>()?.chunks_exact_mut(3);
    points.zip(0..).for_each(|(point, at)| point.copy_from_slice(&place(at, number)));
    Ok(())
}

/// Whether every coordinate is that of cloud `number`, to the last bit: the same program computes it.
pub(crate) fn is_cloud_whole(cloud: &PointCloud, number: u64) -> Result<bool, Error> {
    let map = cloud.map()?;
    let mut points = map.as_slice::<f32>()?.chunks_exact(3).zip(0..);
    let bits = |point: &[f32]| [point[0].to_bits(), point[1].to_bits(), point[2].to_bits()];
    Ok(points.all(|(point, at)| bits(point) == bits(&place(at, number))))
}

/// Where point `at` is.
#[allow(clippy::cast_precision_loss, reason = "a few thousand points")]
fn place(at: u32, number: u64) -> [f32; 3] {
    let degrees = (u64::from(at) + number) % 360;
    let angle = degrees as f32 * std::f32::consts::TAU / 360.0;
    [angle.cos(), angle.sin(), at as f32 / 4096.0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote::DType;

    #[test]
    fn a_depth_image_is_known_by_its_number_and_a_changed_value_is_noticed() {
        let mut depth = DepthImage::new(48, 64, DType::U16).unwrap();
        for number in [0, 1, 12_345] {
            draw_depth(&mut depth, number).unwrap();
            assert!(is_depth_whole(&depth, number).unwrap());
            assert!(!is_depth_whole(&depth, number + 1).unwrap());
        }
        depth.map_mut().unwrap().as_mut_slice::<u16>().unwrap()[48 * 64 - 1] ^= 1;
        assert!(!is_depth_whole(&depth, 12_345).unwrap());
    }

    #[test]
    fn a_cloud_is_known_by_its_number_and_a_changed_bit_is_noticed() {
        let mut cloud = PointCloud::new(100, 3, DType::F32).unwrap();
        for number in [0, 1, 12_345] {
            draw_cloud(&mut cloud, number).unwrap();
            assert!(is_cloud_whole(&cloud, number).unwrap());
            assert!(!is_cloud_whole(&cloud, number + 1).unwrap());
        }
        let mut map = cloud.map_mut().unwrap();
        let last = &mut map.as_mut_slice::<f32>().unwrap()[299];
        *last = f32::from_bits(last.to_bits() ^ 1);
        drop(map);
        assert!(!is_cloud_whole(&cloud, 12_345).unwrap());
    }
}
