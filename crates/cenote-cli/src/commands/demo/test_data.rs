//! Depth images and point clouds of which every value follows from the frame number.

use cenote::{DepthImage, Error, PointCloud};

/// The nearest distance of the slope in millimetres, the steps of its movement, and its height.
const NEAREST: u64 = 1000;
const STEPS: u64 = 1000;
const RISE: u64 = 4096;

/// Draws a moving slope into a depth image (u16).
pub(crate) fn draw_depth(depth: &mut DepthImage, number: u64) -> Result<(), Error> {
    let width = depth.width();
    let mut map = depth.map_mut()?;
    let rows = map.as_mut_slice::<u16>()?.chunks_exact_mut(width);
    rows.zip(0..).for_each(|(row, y)| row.fill(distance(y, number)));
    Ok(())
}

/// Whether every value of a depth image is as [`draw_depth`] makes it for frame `number`.
pub(crate) fn is_depth_intact(depth: &DepthImage, number: u64) -> Result<bool, Error> {
    let map = depth.map()?;
    let mut rows = map.as_slice::<u16>()?.chunks_exact(depth.width()).zip(0..);
    Ok(rows.all(|(row, y)| row.iter().all(|value| *value == distance(y, number))))
}

/// The value of all pixels in row `y`.
#[allow(clippy::cast_possible_truncation, reason = "it is below 2^16")]
fn distance(y: u64, number: u64) -> u16 {
    (NEAREST + number % STEPS + y % RISE) as u16
}

/// Draws a turning ring into a cloud (x, y, z).
pub(crate) fn draw_cloud(cloud: &mut PointCloud, number: u64) -> Result<(), Error> {
    let mut map = cloud.map_mut()?;
    let points = map.as_mut_slice::<f32>()?.chunks_exact_mut(3);
    points.zip(0..).for_each(|(xyz, index)| xyz.copy_from_slice(&point(index, number)));
    Ok(())
}

/// Whether every bit of every coordinate is as [`draw_cloud`] makes it for frame `number`. Exact, because the same
/// program computes both.
pub(crate) fn is_cloud_intact(cloud: &PointCloud, number: u64) -> Result<bool, Error> {
    let map = cloud.map()?;
    let mut points = map.as_slice::<f32>()?.chunks_exact(3).zip(0..);
    let bits = |xyz: &[f32]| [xyz[0].to_bits(), xyz[1].to_bits(), xyz[2].to_bits()];
    Ok(points.all(|(xyz, index)| bits(xyz) == bits(&point(index, number))))
}

/// The coordinates of the point with this index.
#[allow(clippy::cast_precision_loss, reason = "a few thousand points")]
fn point(index: u32, number: u64) -> [f32; 3] {
    let degrees = (u64::from(index) + number) % 360;
    let angle = degrees as f32 * std::f32::consts::TAU / 360.0;
    [angle.cos(), angle.sin(), index as f32 / 4096.0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote::DType;

    #[test]
    fn a_depth_image_matches_its_number_only_and_a_changed_value_is_noticed() {
        let mut depth = DepthImage::new(48, 64, DType::U16).unwrap();
        for number in [0, 1, 12_345] {
            draw_depth(&mut depth, number).unwrap();
            assert!(is_depth_intact(&depth, number).unwrap());
            assert!(!is_depth_intact(&depth, number + 1).unwrap());
        }
        depth.map_mut().unwrap().as_mut_slice::<u16>().unwrap()[48 * 64 - 1] ^= 1;
        assert!(!is_depth_intact(&depth, 12_345).unwrap());
    }

    #[test]
    fn a_cloud_matches_its_number_only_and_a_changed_bit_is_noticed() {
        let mut cloud = PointCloud::new(100, 3, DType::F32).unwrap();
        for number in [0, 1, 12_345] {
            draw_cloud(&mut cloud, number).unwrap();
            assert!(is_cloud_intact(&cloud, number).unwrap());
            assert!(!is_cloud_intact(&cloud, number + 1).unwrap());
        }
        let mut map = cloud.map_mut().unwrap();
        let last = &mut map.as_mut_slice::<f32>().unwrap()[299];
        *last = f32::from_bits(last.to_bits() ^ 1);
        drop(map);
        assert!(!is_cloud_intact(&cloud, 12_345).unwrap());
    }
}
