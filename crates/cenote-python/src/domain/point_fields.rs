//! The fields of a point cloud, as numpy's structured dtypes and as pickled values.

use cenote::{Field, MAX_FIELD_NAME};
use numpy::{PyArrayDescr, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::args::dtype::{self, descr_of};
use crate::runtime::error::{Result, bad_argument};

/// A field as `_unpickle` takes it: name, dtype, count and offset.
pub(super) type FieldParts = (String, String, u16, u32);

/// The parts of a field.
pub(super) fn field_parts(field: &Field) -> FieldParts {
    // `Field` was made of numbers of these types.
    let count = u16::try_from(field.count()).unwrap_or(u16::MAX);
    let offset = u32::try_from(field.offset()).unwrap_or(u32::MAX);
    (field.name().to_owned(), field.dtype().numpy_name().to_owned(), count, offset)
}

/// The field of parts.
pub(super) fn field_of((name, dtype, count, offset): &FieldParts) -> Result<Field> {
    Ok(Field::new(check_name(name)?, dtype.parse()?).with_count(*count).at(*offset))
}

/// Fails if a name is too long. A `Field` does not keep such a name, so a later error could not show it.
fn check_name(name: &str) -> Result<&str> {
    if name.len() <= MAX_FIELD_NAME {
        return Ok(name);
    }
    let start: String = name.chars().take(MAX_FIELD_NAME).collect();
    let (len, limit) = (name.len(), MAX_FIELD_NAME);
    Err(bad_argument(format!("the field name {start:?}... has {len} bytes; the limit is {limit}")))
}

/// The fields of a structured dtype. Ignores their offsets: the cloud places its fields itself.
pub(super) fn fields_of(descr: &Bound<'_, PyArrayDescr>) -> Result<Vec<Field>> {
    let names = descr.getattr("names")?;
    let Ok(names) = names.cast_into::<PyTuple>() else {
        return Err(bad_argument(format!("{descr} has no fields with names")));
    };
    names.iter().map(|name| member(descr, &name)).collect()
}

/// One field of a structured dtype.
fn member(descr: &Bound<'_, PyArrayDescr>, name: &Bound<'_, PyAny>) -> Result<Field> {
    let member = descr.get_item(name)?;
    let shape: Vec<u16> = member.getattr("shape")?.extract()?;
    let base = member.getattr("base")?.cast_into::<PyArrayDescr>().map_err(PyErr::from)?;
    let count = shape.iter().try_fold(1_u16, |all, &each| all.checked_mul(each));
    let count = count.ok_or_else(|| bad_argument("a field has too many values"))?;
    let name = name.cast::<PyString>().map_err(PyErr::from)?;
    Ok(Field::new(check_name(name.to_str()?)?, dtype::from_descr(&base)?).with_count(count))
}

/// Whether all values of a point have one dtype and are contiguous, so that an unstructured array can show
/// them.
pub(super) fn is_uniform(cloud: &cenote::PointCloud) -> bool {
    let (tensor, mut end) = (cloud.tensor(), 0);
    let follows = |field: &Field| {
        let follows = field.dtype() == tensor.dtype() && field.offset() == end;
        end += field.count() * field.dtype().size();
        follows
    };
    cloud.fields().iter().all(follows) && tensor.shape()[1] * tensor.dtype().size() == end
}

/// The structured dtype of a cloud's points.
pub(super) fn structured_dtype<'py>(
    py: Python<'py>,
    cloud: &cenote::PointCloud,
) -> Result<Bound<'py, PyArrayDescr>> {
    let (names, formats, offsets) = (PyList::empty(py), PyList::empty(py), PyList::empty(py));
    for field in cloud.fields() {
        names.append(field.name())?;
        offsets.append(field.offset())?;
        let descr = dtype::descr(py, field.dtype())?;
        match field.count() {
            1 => formats.append(descr)?,
            count => formats.append((descr, (count,)))?,
        }
    }
    let layout = PyDict::new(py);
    layout.set_item("names", names)?;
    layout.set_item("formats", formats)?;
    layout.set_item("offsets", offsets)?;
    layout.set_item("itemsize", cloud.tensor().shape()[1] * cloud.tensor().dtype().size())?;
    descr_of(layout.as_any())
}

/// Whether an array has a structured dtype.
pub(super) fn is_structured(array: &Bound<'_, PyUntypedArray>) -> PyResult<bool> {
    Ok(!array.dtype().getattr("names")?.is_none())
}
