//! Iterating over the points of a cloud, and reading one point.

use std::fmt;
use std::ops::Range;

use bytemuck::{checked, pod_read_unaligned};

use crate::domain::cloud::PointCloud;
use crate::domain::cloud::field::Field;
use crate::error::{Error, Result};
use crate::tensor::map::check_dtype;
use crate::types::dtype::{DType, Element};

/// An iterator over the points of a cloud.
#[derive(Debug, Clone)]
pub struct Points<'a> {
    cloud: &'a PointCloud,
    left: Range<usize>,
}

/// One point of a cloud.
#[derive(Clone, Copy)]
pub struct Point<'a> {
    cloud: &'a PointCloud,
    /// Less than the number of points.
    index: usize,
}

impl PointCloud {
    /// Iterates over the points.
    ///
    /// ```
    /// use cenote::{PointCloud, Tensor};
    ///
    /// let tensor = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// let cloud = PointCloud::from_tensor(tensor)?;
    /// let mut sum = 0.0;
    /// for point in cloud.points() {
    ///     let [x, y, z] = point.xyz()?;
    ///     sum += x + y + z;
    /// }
    /// assert_eq!(sum, 21.0);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn points(&self) -> Points<'_> {
        Points { cloud: self, left: 0..self.len }
    }

    /// Returns one point. Fails if there is none of this index.
    pub fn point_at(&self, index: usize) -> Result<Point<'_>> {
        self.check_point(index)?;
        Ok(Point { cloud: self, index })
    }
}

impl<'a> IntoIterator for &'a PointCloud {
    type Item = Point<'a>;
    type IntoIter = Points<'a>;

    fn into_iter(self) -> Points<'a> {
        self.points()
    }
}

impl<'a> Iterator for Points<'a> {
    type Item = Point<'a>;

    fn next(&mut self) -> Option<Point<'a>> {
        self.left.next().map(|index| Point { cloud: self.cloud, index })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl ExactSizeIterator for Points<'_> {}

impl Point<'_> {
    /// Its index in the cloud.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the value of a field, or the first one if there are several. Fails if `T` is not the field's type.
    pub fn get<T: Element>(&self, name: &str) -> Result<T> {
        self.get_at(name, 0)
    }

    /// Returns one of several values of a field. Fails if `T` is not the field's type.
    pub fn get_at<T: Element>(&self, name: &str, index: usize) -> Result<T> {
        let field = self.cloud.field(name)?;
        check_dtype::<T>(field.dtype())?;
        self.read(field, index, |bytes| {
            checked::try_pod_read_unaligned(bytes)
                .map_err(|_| Error::InvalidValue { dtype: T::DTYPE.name() })
        })
    }

    /// Returns the value of a field of any real type as a number. Fails for complex numbers, and if there is no
    /// such field. Integers above 2^53 are rounded.
    pub fn number(&self, name: &str) -> Result<f64> {
        let field = self.cloud.field(name)?;
        let complex = Error::WrongDType { asked: "a real number", found: field.dtype().name() };
        self.read(field, 0, |bytes| number(bytes, field.dtype()).ok_or(complex))
    }

    /// Returns its position: the fields `x`, `y` and `z`, of any real type.
    pub fn xyz(&self) -> Result<[f64; 3]> {
        Ok([self.number("x")?, self.number("y")?, self.number("z")?])
    }

    /// Returns its colour, if it has one: a field `rgb` of three bytes, or a 4-byte word with blue in its lowest
    /// byte, which is a common convention.
    pub fn rgb(&self) -> Option<[u8; 3]> {
        let field = self.cloud.field("rgb").ok()?;
        let part = |index| self.get_at::<u8>("rgb", index).ok();
        match field.dtype() {
            DType::U8 => Some([part(0)?, part(1)?, part(2)?]),
            DType::U32 | DType::I32 | DType::F32 => {
                let word = self.read(field, 0, |bytes| Ok(pod_read_unaligned::<u32>(bytes)));
                let [_, r, g, b] = word.ok()?.to_be_bytes();
                Some([r, g, b])
            }
            _ => None,
        }
    }

    /// Calls `read` with the bytes of one value.
    fn read<R>(
        &self,
        field: &Field,
        index: usize,
        read: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        let (len, size) = (field.count(), field.dtype().size());
        if index >= len {
            let end = index.saturating_add(1);
            return Err(Error::OutOfRange { axis: 1, start: index, end, len });
        }
        let map = self.cloud.map()?;
        read(&map.row(self.index)?[field.offset() + index * size..][..size])
    }
}

/// Converts a value to `f64`. `None` for complex numbers.
fn number(bytes: &[u8], dtype: DType) -> Option<f64> {
    use pod_read_unaligned as read;
    Some(match dtype {
        DType::F32 => read::<f32>(bytes).into(),
        DType::F64 => read::<f64>(bytes),
        DType::F16 => read::<half::f16>(bytes).to_f64(),
        DType::Bf16 => read::<half::bf16>(bytes).to_f64(),
        DType::I8 => read::<i8>(bytes).into(),
        DType::I16 => read::<i16>(bytes).into(),
        DType::I32 => read::<i32>(bytes).into(),
        DType::I64 => read::<i64>(bytes) as f64,
        DType::U8 | DType::Bool => read::<u8>(bytes).into(),
        DType::U16 => read::<u16>(bytes).into(),
        DType::U32 => read::<u32>(bytes).into(),
        DType::U64 => read::<u64>(bytes) as f64,
        DType::Complex64 | DType::Complex128 => return None,
    })
}

impl fmt::Debug for Point<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |field: &Field| (field.name().to_owned(), self.number(field.name()).ok());
        f.debug_map().entries(self.cloud.fields().iter().map(value)).finish()
    }
}
