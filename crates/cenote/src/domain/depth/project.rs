//! Point clouds of a depth image, and views of parts of it.

use crate::domain::cloud::PointCloud;
use crate::domain::depth::DepthImage;
use crate::domain::depth::intrinsics::Intrinsics;
use crate::domain::domain::check_roi;
use crate::error::{Error, Result};

impl DepthImage {
    /// Computes a point in space for each valid depth, in row-major order of the pixels. `x` is to the right,
    /// `y` down and `z` ahead of the camera, in metres.
    ///
    /// Pixels without a measurement have no point, so the cloud has no rows and columns, and may be empty.
    /// [`to_organized_point_cloud`](DepthImage::to_organized_point_cloud) keeps rows and columns. The cloud
    /// has the header of the image.
    ///
    /// Fails without [intrinsics](DepthImage::set_intrinsics).
    ///
    /// ```
    /// use cenote::{DepthImage, Intrinsics, Tensor};
    /// # unsafe { std::env::set_var("CENOTE_FORCE_MEM", "1") };
    ///
    /// let mut depth = DepthImage::from_tensor(Tensor::from_vec(vec![0.0f32, 2.0], &[1, 2])?)?;
    /// depth.set_intrinsics(Intrinsics { fx: 1.0, fy: 1.0, cx: 0.0, cy: 0.0 })?;
    /// let cloud = depth.to_point_cloud()?;
    /// assert_eq!(cloud.len(), 1);
    /// assert_eq!(cloud.point_at(0)?.xyz()?, [2.0, 0.0, 2.0]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn to_point_cloud(&self) -> Result<PointCloud> {
        let camera = self.intrinsics.ok_or(Error::NoIntrinsics)?;
        let mut valid = 0;
        self.for_each_depth(|_, _| valid += 1)?;
        let mut cloud = PointCloud::new_xyz(valid)?;
        cloud.set_header(self.header);
        let width = self.width();
        let mut map = cloud.map_mut()?;
        let mut points = map.as_mut_slice::<f32>()?.chunks_exact_mut(3);
        self.for_each_depth(|pixel, depth| {
            // Another process may write this memory, so there may be more valid depths than before.
            if let Some(point) = points.next() {
                point.copy_from_slice(&camera.project(pixel % width, pixel / width, depth));
            }
        })?;
        drop(map);
        Ok(cloud)
    }

    /// Like [`to_point_cloud`](DepthImage::to_point_cloud), with a point for every pixel, in the rows and
    /// columns of the image. Where nothing was measured, `x`, `y` and `z` are `NaN`.
    ///
    /// ```
    /// use cenote::{DepthImage, Intrinsics, Tensor};
    /// # unsafe { std::env::set_var("CENOTE_FORCE_MEM", "1") };
    ///
    /// let mut depth = DepthImage::from_tensor(Tensor::from_vec(vec![0.0f32, 2.0], &[1, 2])?)?;
    /// depth.set_intrinsics(Intrinsics { fx: 1.0, fy: 1.0, cx: 0.0, cy: 0.0 })?;
    /// let cloud = depth.to_organized_point_cloud()?;
    /// assert_eq!((cloud.width(), cloud.height()), (2, 1));
    /// assert_eq!(cloud.at(1, 0)?.xyz()?, [2.0, 0.0, 2.0]);
    /// assert!(cloud.at(0, 0)?.xyz()?[2].is_nan());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn to_organized_point_cloud(&self) -> Result<PointCloud> {
        let camera = self.intrinsics.ok_or(Error::NoIntrinsics)?;
        let (width, height) = self.size;
        let mut cloud = PointCloud::organized(width, height, &PointCloud::xyz_fields())?;
        cloud.set_header(self.header);
        let mut map = cloud.map_mut()?;
        let values = map.as_mut_slice::<f32>()?;
        values.fill(f32::NAN);
        self.for_each_depth(|pixel, depth| {
            let point = camera.project(pixel % width, pixel / width, depth);
            values[3 * pixel..][..3].copy_from_slice(&point);
        })?;
        drop(map);
        Ok(cloud)
    }

    /// Returns a rectangle of the image, without a copy and with the same header. Its optical centre is moved,
    /// so that its points in space are the same. Fails if it is not inside the image.
    ///
    /// ```
    /// use cenote::{DType, DepthImage, Intrinsics, Tensor};
    ///
    /// let mut depth = DepthImage::from_tensor(Tensor::new(&[480, 640], DType::F32)?)?;
    /// depth.set_intrinsics(Intrinsics { fx: 525.0, fy: 525.0, cx: 320.0, cy: 240.0 })?;
    /// let centre = depth.roi(300, 220, 40, 40)?;
    /// assert_eq!((centre.width(), centre.intrinsics().unwrap().cx), (40, 20.0));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn roi(&self, x: usize, y: usize, width: usize, height: usize) -> Result<DepthImage> {
        check_roi((x, y), (width, height), self.size)?;
        let part = DepthImage::from_tensor(self.tensor.roi(x, y, width, height)?)?;
        let moved = |camera: Intrinsics| Intrinsics {
            cx: camera.cx - x as f64,
            cy: camera.cy - y as f64,
            ..camera
        };
        Ok(DepthImage { header: self.header, intrinsics: self.intrinsics.map(moved), ..part })
    }
}

impl Intrinsics {
    /// The point in space of a pixel with this depth.
    #[allow(clippy::cast_possible_truncation, reason = "points are f32, computed in f64")]
    fn project(&self, column: usize, row: usize, depth: f32) -> [f32; 3] {
        let z = f64::from(depth);
        let x = (column as f64 - self.cx) * z / self.fx;
        let y = (row as f64 - self.cy) * z / self.fy;
        [x as f32, y as f32, depth]
    }
}
