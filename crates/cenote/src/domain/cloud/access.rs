//! Reading and writing the values of a field, for one point or for all.

use crate::domain::cloud::PointCloud;
use crate::domain::cloud::field::Field;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::map::check_dtype;
use crate::types::dtype::Element;
use crate::types::layout::Layout;

impl PointCloud {
    /// Returns all values of a field, without a copy, as a tensor `[points]`, or `[points, count]` if each point
    /// has several. Fails for a cloud without points, because a tensor has at least one element.
    ///
    /// ```
    /// use cenote::{PointCloud, Tensor};
    ///
    /// let tensor = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// let cloud = PointCloud::from_tensor(tensor)?;
    /// assert_eq!(cloud.column("y")?.to_vec::<f32>()?, [2.0, 5.0]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn column(&self, name: &str) -> Result<Tensor> {
        let field = *self.field(name)?;
        self.view(&field, field.count(), field.dtype().size())
    }

    /// Returns `values` values of each point, `step` bytes apart, from the offset of `first` on.
    pub(crate) fn view(&self, first: &Field, values: usize, step: usize) -> Result<Tensor> {
        let layout = self.layout_of(first, values, step)?;
        self.tensor.reinterpreted(layout, first.dtype())
    }

    /// The layout of such a view.
    pub(crate) fn layout_of(&self, first: &Field, values: usize, step: usize) -> Result<Layout> {
        let (shape, item) = ([self.len, values], first.dtype().size());
        let overflow = || Error::SizeOverflow { shape: shape.into(), item_size: item };
        let strides = [self.tensor.strides()[0], isize::try_from(step).map_err(|_| overflow())?];
        let start = self.tensor.layout().offset().checked_add(first.offset());
        let ndim = if values == 1 { 1 } else { 2 };
        let start = start.ok_or_else(overflow)?;
        Layout::strided(&shape[..ndim], &strides[..ndim], start, item)
    }

    /// Returns the value of a field of one point, or the first one if there are several. Fails if `T` is not the
    /// field's type.
    ///
    /// ```
    /// use cenote::{PointCloud, Tensor};
    ///
    /// let mut cloud = PointCloud::from_tensor(Tensor::from_vec(vec![0.0f32; 12], &[3, 4])?)?;
    /// cloud.set(2, "intensity", 0.5f32)?;
    /// assert_eq!(cloud.get::<f32>(2, "intensity")?, 0.5);
    /// assert!(cloud.get::<u16>(2, "intensity").is_err());
    /// assert!(cloud.get::<f32>(2, "ring").is_err() && cloud.get::<f32>(3, "x").is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn get<T: Element>(&self, point: usize, name: &str) -> Result<T> {
        self.point_at(point)?.get(name)
    }

    /// Sets the value of a field of one point, or the first one if there are several. Fails if `T` is not the
    /// field's type.
    pub fn set<T: Element>(&mut self, point: usize, name: &str, value: T) -> Result<()> {
        self.set_all(point, name, &[value])
    }

    /// Sets the first values of a field of one point. Fails if there are more than the field has, or `T` is not
    /// its type.
    pub fn set_all<T: Element>(&mut self, point: usize, name: &str, values: &[T]) -> Result<()> {
        self.check_point(point)?;
        let field = *self.field(name)?;
        check_dtype::<T>(field.dtype())?;
        if values.len() > field.count() {
            let (expected, given) = (field.count(), values.len());
            return Err(Error::WrongLen { shape: [expected].into(), expected, given });
        }
        self.write_rows(point, &field, values, values.len())
    }

    /// Sets the values of a field of all points. Fails unless there are as many values as points, times the
    /// [count](Field::count) of the field.
    ///
    /// ```
    /// use cenote::{PointCloud, Tensor};
    ///
    /// let mut cloud = PointCloud::from_tensor(Tensor::from_vec(vec![0.0f32; 6], &[2, 3])?)?;
    /// cloud.set_column("z", &[1.0f32, 2.0])?;
    /// assert_eq!(cloud.point_at(1)?.xyz()?, [0.0, 0.0, 2.0]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn set_column<T: Element>(&mut self, name: &str, values: &[T]) -> Result<()> {
        let field = *self.field(name)?;
        check_dtype::<T>(field.dtype())?;
        let expected = self.len.saturating_mul(field.count());
        if values.len() != expected {
            let shape = [self.len, field.count()].into();
            return Err(Error::WrongLen { shape, expected, given: values.len() });
        }
        self.write_rows(0, &field, values, field.count())
    }

    /// Writes `count` values into each point from `first` on, until the values are used up.
    fn write_rows<T: Element>(
        &mut self,
        first: usize,
        field: &Field,
        values: &[T],
        count: usize,
    ) -> Result<()> {
        let mut map = self.tensor.map_mut()?;
        for (index, values) in values.chunks_exact(count.max(1)).enumerate() {
            let bytes = bytemuck::cast_slice::<T, u8>(values);
            map.row_mut(first + index)?[field.offset()..][..bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    pub(crate) fn check_point(&self, point: usize) -> Result<()> {
        if point < self.len {
            return Ok(());
        }
        Err(Error::NoSuchPoint { point, len: self.len })
    }
}
