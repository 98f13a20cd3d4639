//! Point clouds: a tensor of points, and the fields that name the values of a point.
//!
//! A point is a row of the tensor. If all fields have one dtype and leave no gap, the tensor has that dtype and
//! the shape `[points, values]`. Otherwise it is bytes, `[points, bytes of a point]`, in which fields lie as
//! the members of a C struct do.

use std::fmt;

use crate::domain::cloud::field::{
    Field, Fields, MAX_FIELDS, check_fields, pack, read_fields, write_fields,
};
use crate::domain::domain::{Domain, sealed, tensor_accessors};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::types::dtype::DType;
use crate::types::metadata::header::{Header, header_accessors};
use crate::types::metadata::{MAX_META, Room, Words};

// The longest metadata fits.
const _: () = assert!(Header::MAX_WORDS + 3 + MAX_FIELDS * Field::MAX_WORDS <= MAX_META);

/// A point cloud: points with named values.
///
/// A thin layer over one [`Tensor`] with a row for each point. A tensor is never empty, but a cloud may be: it
/// has [`len`](PointCloud::len) points in memory for [`capacity`](PointCloud::capacity) points. The rule for
/// writing is that of tensors: points can be written by the only holder of a cloud that was never sent.
///
/// ```
/// use cenote::{DType, PointCloud};
/// # unsafe { std::env::set_var("CENOTE_FORCE_MEM", "1") };
///
/// let cloud = PointCloud::new(10_000, 3, DType::F32)?;
/// assert_eq!((cloud.len(), cloud.tensor().shape()), (10_000, &[10_000, 3][..]));
/// assert_eq!(cloud.fields()[2].name(), "z");
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Clone)]
pub struct PointCloud {
    /// `[capacity, values]`; the values of a point are contiguous.
    pub(crate) tensor: Tensor,
    /// The number of points; at most the number of rows of the tensor.
    pub(crate) len: usize,
    /// The columns of an organized cloud, which divide `len`; 0 for other clouds.
    pub(crate) columns: usize,
    /// Each field lies within a row.
    pub(crate) fields: Fields,
    pub(crate) header: Header,
}

impl PointCloud {
    /// Makes a cloud of memory that `alloc` returns for a shape and a dtype.
    pub(crate) fn alloc(
        alloc: impl FnOnce(&[usize], DType) -> Result<Tensor>,
        points: usize,
        fields: &[Field],
    ) -> Result<PointCloud> {
        let packed = pack(fields)?;
        let tensor = alloc(&[points.max(1), packed.values], packed.dtype)?;
        Ok(PointCloud { len: points, ..PointCloud::of(tensor, packed.fields)? })
    }

    /// Makes a cloud of all rows of a tensor `[points, values]`, without a copy. The fields have the names that
    /// [`new`](PointCloud::new) uses. Fails if the values of a row are not contiguous.
    pub fn from_tensor(tensor: Tensor) -> Result<PointCloud> {
        let values = tensor.shape().get(1).copied().unwrap_or(0);
        let fields = pack(&PointCloud::numbered_fields(values, tensor.dtype())?)?.fields;
        PointCloud::of(tensor, fields)
    }

    /// Makes a cloud of all rows of a tensor, without a copy, with fields at their [offsets](Field::at). Fails
    /// if a field reaches beyond the end of a row.
    pub fn from_tensor_with_fields(tensor: Tensor, fields: &[Field]) -> Result<PointCloud> {
        PointCloud::of(tensor, check_fields(fields)?)
    }

    /// Makes a cloud. All others end here, so this checks that every field lies within a row.
    fn of(tensor: Tensor, fields: Fields) -> Result<PointCloud> {
        let row = row_bytes(&tensor)?;
        for field in &fields {
            field.check_within(row)?;
        }
        let len = tensor.shape()[0];
        Ok(PointCloud { tensor, len, columns: 0, fields, header: Header::default() })
    }

    /// The fields of a cloud of unnamed values: `x`, `y`, `z`, `intensity`, `f4` and so on.
    pub(crate) fn numbered_fields(values: usize, dtype: DType) -> Result<Vec<Field>> {
        if !(1..=MAX_FIELDS).contains(&values) {
            return Err(Error::FieldCount { given: values, max: MAX_FIELDS });
        }
        let name = |index: usize| match ["x", "y", "z", "intensity"].get(index) {
            Some(name) => (*name).to_owned(),
            None => format!("f{index}"),
        };
        Ok((0..values).map(|index| Field::new(&name(index), dtype)).collect())
    }

    /// The number of points.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of points that there is memory for.
    pub fn capacity(&self) -> usize {
        self.tensor.shape()[0]
    }

    /// Sets the number of points, which are the first `len` rows of the tensor. Fails above the
    /// [capacity](PointCloud::capacity). If the number changes, the cloud is no longer organized.
    pub fn set_len(&mut self, len: usize) -> Result<()> {
        if len > self.capacity() {
            return Err(Error::CloudFull { asked: len, capacity: self.capacity() });
        }
        if len != self.len {
            (self.len, self.columns) = (len, 0);
        }
        Ok(())
    }

    /// The fields of a point.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the field of this name. Fails if there is none.
    pub fn field(&self, name: &str) -> Result<&Field> {
        self.fields.iter().find(|field| field.name() == name).ok_or_else(|| Error::NoSuchField {
            field: name.into(),
            known: self.fields.iter().map(|field| field.name().to_owned()).collect(),
        })
    }
}

tensor_accessors!(PointCloud);
header_accessors!(PointCloud);

impl sealed::Sealed for PointCloud {}

impl Domain for PointCloud {
    const KIND: u16 = 2;

    fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    fn write_meta(&self, room: &mut Room<'_>) {
        self.header.write(room);
        room.push(self.len as u64);
        room.push(self.columns as u64);
        write_fields(&self.fields, room);
    }

    fn from_parts(tensor: Tensor, mut words: Words<'_>) -> Result<PointCloud> {
        let header = Header::read(&mut words)?;
        let number = |word| usize::try_from(word);
        let too_many = |_| Error::BadMessage { what: "too many points" };
        let len = number(words.next()?).map_err(too_many)?;
        let columns = number(words.next()?).map_err(too_many)?;
        let fields = read_fields(&mut words)?;
        words.end()?;
        let mut cloud = PointCloud { header, ..PointCloud::of(tensor, fields)? };
        cloud.set_len(len)?;
        match columns {
            0 => Ok(cloud),
            columns => cloud.with_columns(columns, len / columns),
        }
    }
}

impl fmt::Debug for PointCloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PointCloud")
            .field("len", &self.len)
            .field("columns", &self.columns)
            .field("fields", &self.fields())
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

/// Returns the bytes of a point. Fails unless the tensor is rows of contiguous values.
fn row_bytes(tensor: &Tensor) -> Result<usize> {
    let item = tensor.dtype().size();
    match (tensor.shape(), tensor.strides()) {
        (&[_, values], &[_, step]) if values == 1 || usize::try_from(step) == Ok(item) => {
            Ok(values * item)
        }
        (shape, strides) => {
            Err(Error::CloudLayout { shape: shape.into(), strides: strides.into() })
        }
    }
}
