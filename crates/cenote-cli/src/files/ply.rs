//! PLY, the Stanford polygon format: the coordinates of points, and their colours if they have any.

use std::path::Path;

use cenote::PointCloud;

use crate::failure::Outcome;
use crate::files::atomic_write;

/// Writes a point cloud.
pub(crate) fn save(cloud: &PointCloud, path: &Path) -> Outcome {
    atomic_write::write(path, &encode(cloud)?)
}

#[allow(clippy::cast_possible_truncation, reason = "coordinates are stored as f32")]
fn encode(cloud: &PointCloud) -> Outcome<Vec<u8>> {
    let coloured = cloud.points().next().is_some_and(|point| point.rgb().is_some());
    let mut file = header(cloud.len(), coloured).into_bytes();
    for point in cloud.points() {
        for coordinate in point.xyz()? {
            file.extend_from_slice(&(coordinate as f32).to_le_bytes());
        }
        if coloured {
            file.extend_from_slice(&point.rgb().unwrap_or_default());
        }
    }
    Ok(file)
}

fn header(points: usize, coloured: bool) -> String {
    let mut text = format!("ply\nformat binary_little_endian 1.0\nelement vertex {points}\n");
    for coordinate in ["x", "y", "z"] {
        text += &format!("property float {coordinate}\n");
    }
    let colours = ["red", "green", "blue"].iter().filter(|_| coloured);
    colours.for_each(|colour| text += &format!("property uchar {colour}\n"));
    text + "end_header\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_follow_the_header() {
        let cloud = PointCloud::from_xyz(&[[1.0, 2.0, 3.0]]).unwrap();
        let file = encode(&cloud).unwrap();
        let body = file.strip_prefix(header(1, false).as_bytes()).unwrap();
        let numbers: Vec<u8> = [1.0_f32, 2.0, 3.0].iter().flat_map(|n| n.to_le_bytes()).collect();
        assert_eq!(body, numbers);
    }

    #[test]
    fn colours_are_kept() {
        let cloud = PointCloud::from_xyzrgb(&[([0.0; 3], [10, 20, 30])]).unwrap();
        let file = encode(&cloud).unwrap();
        assert!(String::from_utf8_lossy(&file).contains("property uchar green\n"));
        assert_eq!(file[file.len() - 3..], [10, 20, 30]);
    }
}
