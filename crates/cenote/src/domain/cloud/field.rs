//! The fields of a point: the names, types and offsets of its values.

use crate::error::{Error, Result};
use crate::types::dtype::DType;
use crate::types::metadata::text::Text;
use crate::types::metadata::{Room, Words};
use crate::types::pixel_format::few::Few;

/// The most fields that a point cloud can have.
pub const MAX_FIELDS: usize = 16;

/// The longest name of a field, in bytes.
pub const MAX_FIELD_NAME: usize = 16;

/// All fields of a cloud.
pub(crate) type Fields = Few<Field, MAX_FIELDS>;

/// A named value of every point: `x`, `intensity`, `ring`.
///
/// ```
/// use cenote::{DType, Field};
///
/// let colour = Field::new("rgb", DType::U8).with_count(3);
/// assert_eq!((colour.name(), colour.dtype(), colour.count()), ("rgb", DType::U8, 3));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    name: FieldName,
    dtype: DType,
    count: u16,
    /// Bytes from the start of the point.
    offset: u32,
}

/// The name of a field. A name that is too long is reported when a cloud is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FieldName {
    text: Text<MAX_FIELD_NAME>,
    fits: bool,
}

impl Field {
    /// The most words of metadata that a field takes.
    pub(crate) const MAX_WORDS: usize = 1 + Text::<MAX_FIELD_NAME>::WORDS;

    /// One value of this name for each point. A cloud refuses a name of more than [`MAX_FIELD_NAME`] bytes.
    pub fn new(name: &str, dtype: DType) -> Field {
        let text = Text::new(name);
        let name = FieldName { fits: text.is_some(), text: text.unwrap_or_default() };
        Field { name, dtype, count: 1, offset: 0 }
    }

    /// Sets how many values of this name each point has, one after another.
    #[must_use]
    pub fn with_count(self, count: u16) -> Field {
        Field { count, ..self }
    }

    /// Sets the offset in a point, in bytes, for
    /// [`from_tensor_with_fields`](crate::PointCloud::from_tensor_with_fields).
    #[must_use]
    pub fn at(self, offset: u32) -> Field {
        Field { offset, ..self }
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.name.text.as_str()
    }

    /// The type of its values.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of values of this name that each point has.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// The offset in a point, in bytes.
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    fn nbytes(&self) -> usize {
        self.count() * self.dtype.size()
    }

    fn bad(&self, rule: &'static str) -> Error {
        Error::BadField { field: self.name().into(), rule }
    }

    /// Fails unless the field lies within a point of `point` bytes.
    pub(crate) fn check_within(&self, point: usize) -> Result<()> {
        match self.offset().checked_add(self.nbytes()) {
            Some(end) if end <= point => Ok(()),
            _ => Err(self.bad("it reaches beyond the end of the point")),
        }
    }

    fn check(&self) -> Result<()> {
        if !self.name.fits {
            return Err(self.bad("its name has more than 16 bytes"));
        }
        if self.name().is_empty() {
            return Err(self.bad("it needs a name"));
        }
        if self.count == 0 {
            return Err(self.bad("it must have at least one value"));
        }
        Ok(())
    }

    fn write(&self, room: &mut Room<'_>) {
        let name = self.name.text.len() as u64;
        let word = u64::from(self.offset)
            | u64::from(self.count) << 32
            | u64::from(self.dtype.code()) << 48
            | name << 56;
        room.push(word);
        self.name.text.write(room);
    }

    fn read(words: &mut Words<'_>) -> Result<Field> {
        let word = words.next()?;
        let [a, b, c, d, e, f, dtype, name] = word.to_le_bytes();
        let unknown = Error::BadMessage { what: "unknown dtype" };
        Ok(Field {
            name: FieldName { text: Text::read(u64::from(name), words)?, fits: true },
            dtype: DType::from_code(dtype).ok_or(unknown)?,
            count: u16::from_le_bytes([e, f]),
            offset: u32::from_le_bytes([a, b, c, d]),
        })
    }
}

/// The filler of unused elements of [`Few`]; never visible.
impl Default for Field {
    fn default() -> Self {
        Field::new("", DType::U8)
    }
}

/// Fields with their offsets, and the tensor elements that a point takes.
pub(crate) struct PackedFields {
    pub(crate) fields: Fields,
    pub(crate) dtype: DType,
    /// The number of elements in a point.
    pub(crate) values: usize,
}

/// Places fields one after another, each aligned for its dtype. Fails if they are invalid or too large.
pub(crate) fn pack(fields: &[Field]) -> Result<PackedFields> {
    let mut packed = check_fields(fields)?.into_iter().collect::<Vec<_>>();
    let (mut end, mut align) = (0_u32, 1_u32);
    for field in &mut packed {
        let too_large = field.bad("the point would have more than 4 GiB");
        // Aligning to the size is more than a complex number needs; its size is a power of two too.
        let size = u32::try_from(field.dtype.size()).unwrap_or(1);
        align = align.max(size);
        let after = |end: u32| {
            let start = end.checked_next_multiple_of(size)?;
            Some((start, start.checked_add(u32::from(field.count).checked_mul(size)?)?))
        };
        (field.offset, end) = after(end).ok_or(too_large)?;
    }
    let whole = end.checked_next_multiple_of(align);
    let bytes =
        whole.ok_or_else(|| packed[0].bad("the point would have more than 4 GiB"))? as usize;
    let dtype = packed[0].dtype;
    let uniform = packed.iter().all(|field| field.dtype == dtype);
    let dtype = if uniform { dtype } else { DType::U8 };
    Ok(PackedFields { fields: Fields::new(packed), dtype, values: bytes / dtype.size() })
}

/// Fails unless the number, names and counts of the fields are valid. Offsets are not checked.
pub(crate) fn check_fields(fields: &[Field]) -> Result<Fields> {
    if !(1..=MAX_FIELDS).contains(&fields.len()) {
        return Err(Error::FieldCount { given: fields.len(), max: MAX_FIELDS });
    }
    for (index, field) in fields.iter().enumerate() {
        field.check()?;
        if fields[..index].iter().any(|earlier| earlier.name() == field.name()) {
            return Err(field.bad("there are two of this name"));
        }
    }
    Ok(Fields::new(fields.iter().copied()))
}

pub(crate) fn write_fields(fields: &Fields, room: &mut Room<'_>) {
    room.push(fields.len() as u64);
    fields.iter().for_each(|field| field.write(room));
}

pub(crate) fn read_fields(words: &mut Words<'_>) -> Result<Fields> {
    let count = usize::try_from(words.next()?).unwrap_or(usize::MAX);
    if count > MAX_FIELDS {
        return Err(Error::FieldCount { given: count, max: MAX_FIELDS });
    }
    let mut fields = Fields::new([]);
    for _ in 0..count {
        fields.push(Field::read(words)?);
    }
    check_fields(&fields)
}
