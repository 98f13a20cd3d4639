//! Clouds with coordinates: constructors, and the coordinates as one array.

#[cfg(feature = "ndarray")]
use ndarray::{ArrayView2, ArrayViewMut2, Ix2};

use crate::copies;
use crate::copies::CopyReason;
use crate::domain::cloud::PointCloud;
use crate::domain::cloud::field::Field;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
#[cfg(feature = "ndarray")]
use crate::tensor::map::check_dtype;
use crate::types::dtype::DType;
#[cfg(feature = "ndarray")]
use crate::types::dtype::Element;

impl PointCloud {
    /// The fields `x`, `y` and `z`, as `f32`.
    pub fn xyz_fields() -> [Field; 3] {
        ["x", "y", "z"].map(|name| Field::new(name, DType::F32))
    }

    /// `x`, `y`, `z` and `intensity`, as `f32`.
    pub fn xyzi_fields() -> [Field; 4] {
        ["x", "y", "z", "intensity"].map(|name| Field::new(name, DType::F32))
    }

    /// `x`, `y`, `z` as `f32`, and `rgb` as three bytes.
    pub fn xyzrgb_fields() -> [Field; 4] {
        let [x, y, z] = Self::xyz_fields();
        [x, y, z, Field::new("rgb", DType::U8).with_count(3)]
    }

    /// Allocates points of zeros with `x`, `y`, `z`.
    pub fn new_xyz(points: usize) -> Result<PointCloud> {
        PointCloud::with_fields(points, &Self::xyz_fields())
    }

    /// Allocates points of zeros with `x`, `y`, `z`, `intensity`.
    pub fn new_xyzi(points: usize) -> Result<PointCloud> {
        PointCloud::with_fields(points, &Self::xyzi_fields())
    }

    /// Allocates points of zeros with `x`, `y`, `z`, `rgb`.
    pub fn new_xyzrgb(points: usize) -> Result<PointCloud> {
        PointCloud::with_fields(points, &Self::xyzrgb_fields())
    }

    /// Allocates a cloud and copies these points into it. [`copies`](crate::copies) counts that.
    ///
    /// ```
    /// use cenote::PointCloud;
    /// # unsafe { std::env::set_var("CENOTE_FORCE_MEM", "1") };
    ///
    /// let cloud = PointCloud::from_xyz(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    /// assert_eq!(cloud.point_at(1)?.xyz()?, [4.0, 5.0, 6.0]);
    /// assert!(PointCloud::from_xyz(&[])?.is_empty());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn from_xyz(points: &[[f32; 3]]) -> Result<PointCloud> {
        Self::new_xyz(points.len())?.filled(bytemuck::cast_slice(points))
    }

    /// Allocates a cloud and copies these points into it: `x`, `y`, `z`, `intensity`.
    pub fn from_xyzi(points: &[[f32; 4]]) -> Result<PointCloud> {
        Self::new_xyzi(points.len())?.filled(bytemuck::cast_slice(points))
    }

    /// Allocates a cloud and copies these points into it, each with its colour.
    pub fn from_xyzrgb(points: &[([f32; 3], [u8; 3])]) -> Result<PointCloud> {
        let mut cloud = Self::new_xyzrgb(points.len())?;
        let mut map = cloud.tensor.map_mut()?;
        for (index, (xyz, rgb)) in points.iter().enumerate() {
            let row = map.row_mut(index)?;
            row[..12].copy_from_slice(bytemuck::bytes_of(xyz));
            row[12..15].copy_from_slice(rgb);
        }
        drop(map);
        copies::count(CopyReason::CopiedIn, size_of_val(points));
        Ok(cloud)
    }

    /// Copies values into a new cloud of `f32`.
    fn filled(mut self, values: &[f32]) -> Result<PointCloud> {
        // An empty cloud has memory for one point, so the slice may be longer than `values`.
        self.tensor.map_mut()?.as_mut_slice::<f32>()?[..values.len()].copy_from_slice(values);
        copies::count(CopyReason::CopiedIn, size_of_val(values));
        Ok(self)
    }

    /// Returns the coordinates as a tensor `[points, 3]`, without a copy. Other fields are skipped.
    ///
    /// Fails unless `x`, `y` and `z` have one dtype and equal distances, and for a cloud without points.
    ///
    /// ```
    /// use cenote::{DType, PointCloud, Tensor};
    ///
    /// let cloud = PointCloud::from_tensor(Tensor::new(&[100, 4], DType::F32)?)?;
    /// let xyz = cloud.xyz()?;
    /// assert_eq!((xyz.shape(), xyz.strides()), (&[100, 3][..], &[16, 4][..]));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn xyz(&self) -> Result<Tensor> {
        let (first, step) = self.xyz_stride()?;
        self.view(&first, 3, step)
    }

    /// The field `x`, and the bytes from there to `y`.
    fn xyz_stride(&self) -> Result<(Field, usize)> {
        let [x, y, z] = [*self.field("x")?, *self.field("y")?, *self.field("z")?];
        let step = y.offset().checked_sub(x.offset());
        let step = step.filter(|&step| z.offset().checked_sub(y.offset()) == Some(step));
        let alike = x.dtype() == y.dtype() && y.dtype() == z.dtype();
        match step.filter(|_| alike) {
            Some(step) => Ok((x, step)),
            None => Err(Error::BadField {
                field: "x".into(),
                rule: "to be seen as one array, x, y and z need one dtype and equal distances",
            }),
        }
    }
}

#[cfg(feature = "ndarray")]
impl PointCloud {
    /// Calls `read` with the coordinates as an array with a row for each point, without a copy. Fails unless
    /// `x`, `y` and `z` have this type and equal distances.
    ///
    /// ```
    /// use cenote::{PointCloud, Tensor};
    ///
    /// let tensor = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// let cloud = PointCloud::from_tensor(tensor)?;
    /// let height = cloud.with_xyz::<f32, _>(|xyz| xyz.column(2).sum())?;
    /// assert_eq!(height, 9.0);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn with_xyz<T: Element, R>(&self, read: impl FnOnce(ArrayView2<'_, T>) -> R) -> Result<R> {
        let (first, _) = self.xyz_stride()?;
        check_dtype::<T>(first.dtype())?;
        if self.is_empty() {
            return Ok(read(ArrayView2::from_shape((0, 3), &[]).map_err(wrong_shape)?));
        }
        let xyz = self.xyz()?;
        let map = xyz.map()?;
        Ok(read(map.as_array::<T>()?.into_dimensionality::<Ix2>().map_err(wrong_shape)?))
    }

    /// Calls `write` with the coordinates as an array that can be written. Fails as
    /// [`with_xyz`](PointCloud::with_xyz) does, and as [`map_mut`](PointCloud::map_mut) does.
    ///
    /// ```
    /// use cenote::{DType, PointCloud, Tensor};
    ///
    /// let mut cloud = PointCloud::from_tensor(Tensor::new(&[100, 4], DType::F32)?)?;
    /// cloud.with_xyz_mut::<f32, _>(|mut xyz| xyz.column_mut(2).fill(1.5))?;
    /// assert_eq!(cloud.point_at(99)?.xyz()?, [0.0, 0.0, 1.5]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn with_xyz_mut<T: Element, R>(
        &mut self,
        write: impl FnOnce(ArrayViewMut2<'_, T>) -> R,
    ) -> Result<R> {
        let (first, step) = self.xyz_stride()?;
        check_dtype::<T>(first.dtype())?;
        if self.is_empty() {
            self.tensor.map_mut()?;
            return Ok(write(ArrayViewMut2::from_shape((0, 3), &mut []).map_err(wrong_shape)?));
        }
        let layout = self.layout_of(&first, 3, step)?;
        let mut map = self.tensor.map_mut()?.reinterpreted(layout, first.dtype())?;
        let array = map.as_array_mut::<T>()?;
        Ok(write(array.into_dimensionality::<Ix2>().map_err(wrong_shape)?))
    }
}

/// Not reached: the arrays above have two axes.
#[cfg(feature = "ndarray")]
#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn wrong_shape(_: ndarray::ShapeError) -> Error {
    Error::NoSuchAxis { axis: 1, ndim: 2 }
}
