//! `cenote.PointCloud`.
#![allow(unsafe_code, reason = "the buffer protocol is told of by pointers")]

use std::ffi::c_int;

use cenote::{DType, Domain, Field, MAX_FIELD_NAME};
use numpy::{PyArrayDescr, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyString, PyTuple, PyType};

use crate::args::dtype::{self, DTypeArg, descr_of};
use crate::args::integer::{count, size};
use crate::args::shape::tuple;
use crate::domain::class::{LockedValue, domain_class};
use crate::domain::header::{HeaderParts, header, parts, shown};
use crate::interop::export::Access;
use crate::interop::numpy_array::{self, array};
use crate::pool::TensorPool;
use crate::runtime::error::{Result, bad_argument};
use crate::runtime::py_call;
use crate::tensor::Tensor;
use crate::tensor::index;

/// A point cloud: points with named values.
///
/// >>> cloud = cenote.PointCloud(10000, 3, "float32")
/// >>> cloud
/// <cenote.PointCloud of 10000 points (x, y, z), float32, shm>
/// >>> cloud.numpy().shape, cloud["z"].shape
/// ((10000, 3), (10000,))
///
/// Points are zeros of `values` values: `x`, `y`, `z`, `intensity`, and from the fifth on `f4`, `f5` and so
/// forth. Or their values have the names and dtypes of `fields`, which is what numpy makes a structured
/// dtype of; if those are not all alike, so is the array:
///
/// >>> cloud = cenote.PointCloud(100, fields=[("x", "f4"), ("y", "f4"), ("z", "f4"), ("ring", "u2")])
/// >>> cloud.numpy().dtype.names
/// ('x', 'y', 'z', 'ring')
///
/// The pool is that of this process, or `pool`, where points hold whatever the memory held before.
#[pyclass(frozen, extends = Tensor, module = "cenote")]
#[derive(Debug)]
pub(crate) struct PointCloud(pub(crate) LockedValue<cenote::PointCloud>);

domain_class!(PointCloud, cenote::PointCloud);

impl PointCloud {
    /// The points that there are, unless there are none: no tensor is empty.
    fn base_of(cloud: &cenote::PointCloud) -> cenote::Tensor {
        let tensor = cloud.tensor();
        if cloud.len() == cloud.capacity() {
            return tensor.clone();
        }
        tensor.narrow(0, 0, cloud.len()).unwrap_or_else(|_| tensor.clone())
    }
}

impl PointCloud {
    /// Whether the elements of the tensor are the points, and all of them.
    fn is_plain(&self) -> bool {
        let cloud = self.0.lock();
        !cloud.is_empty() && is_alike(&cloud)
    }
}

#[pymethods]
impl PointCloud {
    #[new]
    #[pyo3(signature = (
        points, values=3, dtype=DTypeArg(DType::F32), *, fields=None, frame_id="", stamp_ns=0, seq=0,
        pool=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = size::points)] points: usize,
        #[pyo3(from_py_with = size::values)] values: usize,
        dtype: DTypeArg,
        fields: Option<&Bound<'_, PyAny>>,
        frame_id: &str,
        #[pyo3(from_py_with = count::stamp_ns)] stamp_ns: u64,
        #[pyo3(from_py_with = count::seq)] seq: u64,
        pool: Option<&Bound<'_, TensorPool>>,
    ) -> Result<PyClassInitializer<PointCloud>> {
        let header = header(frame_id, stamp_ns, seq)?;
        let fields = fields.map(|given| fields_of(&descr_of(given)?)).transpose()?;
        let pool = pool.map(|pool| pool.get().get()).transpose()?;
        let made = py.detach(|| match (fields, pool) {
            (Some(fields), Some(pool)) => cenote::PointCloud::new_in(&pool, points, &fields),
            (Some(fields), None) => cenote::PointCloud::with_fields(points, &fields),
            (None, Some(pool)) => numbered_in(&pool, points, values, dtype.0),
            (None, None) => cenote::PointCloud::new(points, values, dtype.0),
        });
        let mut cloud = made?;
        cloud.set_header(header);
        Ok(PointCloud::init(cloud))
    }

    /// A cloud with a copy of an array: `(points, values)`, or `(points,)` of a structured dtype.
    ///
    /// >>> cenote.PointCloud.from_numpy(numpy.zeros((100, 4), "float32"))
    /// <cenote.PointCloud of 100 points (x, y, z, intensity), float32, shm>
    #[staticmethod]
    #[pyo3(signature = (array, *, frame_id="", stamp_ns=0, seq=0))]
    fn from_numpy(
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        frame_id: &str,
        #[pyo3(from_py_with = count::stamp_ns)] stamp_ns: u64,
        #[pyo3(from_py_with = count::seq)] seq: u64,
    ) -> Result<Py<PointCloud>> {
        let (array, header) = (numpy_array::to_array(array)?, header(frame_id, stamp_ns, seq)?);
        let mut cloud = match (array.dtype().getattr("names")?.is_none(), array.shape()) {
            (false, [_]) => copy_structured(&array)?,
            (true, &[0, values]) => {
                cenote::PointCloud::new(0, values, dtype::from_descr(&array.dtype())?)?
            }
            (true, &[_, _]) => {
                let source = numpy_array::adopt(&array)?;
                cenote::PointCloud::from_tensor(py.detach(|| source.to_pooled())?)?
            }
            (_, shape) => {
                let (shape, neither) = (tuple(shape), "is neither (points, values) nor (points,)");
                let message = format!("an array of shape {shape} {neither} of a structured dtype");
                return Err(bad_argument(message));
            }
        };
        cloud.set_header(header);
        Ok(PointCloud::make(py, cloud)?)
    }

    /// The cloud that a tensor `(points, values)` is, without a copy.
    #[staticmethod]
    #[pyo3(signature = (tensor, *, frame_id="", stamp_ns=0, seq=0))]
    fn from_tensor(
        py: Python<'_>,
        tensor: &Bound<'_, Tensor>,
        frame_id: &str,
        #[pyo3(from_py_with = count::stamp_ns)] stamp_ns: u64,
        #[pyo3(from_py_with = count::seq)] seq: u64,
    ) -> Result<Py<PointCloud>> {
        let mut cloud = cenote::PointCloud::from_tensor(tensor.get().0.clone())?;
        cloud.set_header(header(frame_id, stamp_ns, seq)?);
        Ok(PointCloud::make(py, cloud)?)
    }

    /// The number of points that there is room for.
    #[getter]
    fn capacity(&self) -> usize {
        self.0.lock().capacity()
    }

    /// What the values of a point are: name, dtype, how many of that name, and where in a point they
    /// lie, in bytes.
    ///
    /// >>> cenote.PointCloud(1, 2).fields
    /// [('x', 'float32', 1, 0), ('y', 'float32', 1, 4)]
    #[getter]
    fn fields(&self) -> Vec<FieldParts> {
        self.0.lock().fields().iter().map(field_parts).collect()
    }

    /// The array over the same memory, without a copy: `(points, values)`, or `(points,)` of a
    /// structured dtype if the fields are not all alike. Else as with tensors.
    fn numpy<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        points_array(py, &self.0.get(), Access::WriteIfAllowed)
    }

    /// All values of a field, without a copy; `cloud["x"]` is the same. An error for a cloud without
    /// points.
    fn column(&self, name: &str) -> Result<Tensor> {
        Ok(Tensor(self.0.with(|cloud| cloud.column(name))?))
    }

    /// The coordinates, `(points, 3)`, without a copy. An error if `x`, `y` and `z` do not have one dtype
    /// and equal distances, and for a cloud without points.
    fn xyz(&self) -> Result<Tensor> {
        Ok(Tensor(self.0.with(|cloud| cloud.xyz())?))
    }

    fn __len__(&self) -> usize {
        self.0.lock().len()
    }

    /// A field by its name, or a view as of a tensor.
    fn __getitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> Result<Tensor> {
        match key.cast::<PyString>() {
            Ok(name) => slf.get().column(name.to_str()?),
            Err(_) => Ok(Tensor(index::view(&slf.as_super().get().0, key)?)),
        }
    }

    /// Writes points, as numpy does: `cloud["z"] = 1`, `cloud[...] = array`.
    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> Result<()> {
        let cloud = self.0.get();
        if let Ok(name) = key.cast::<PyString>() {
            let column = array(py, &cloud.column(name.to_str()?)?, Access::Write)?;
            return Ok(py_call::set_item(column.as_any(), index::ellipsis(py).as_any(), value)?);
        }
        Ok(py_call::set_item(&points_array(py, &cloud, Access::Write)?, key, value)?)
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let array = points_array(py, &self.0.get(), Access::Read)?;
        numpy_array::converted(array.cast_into().map_err(PyErr::from)?, dtype, copy)
    }

    /// The old array interface, where a tensor has the same elements.
    #[getter]
    fn __array_interface__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyDict>> {
        match slf.get().is_plain() {
            true => slf.as_super().get().__array_interface__(slf.py()),
            false => Err(PyAttributeError::new_err("points that only `numpy()` knows").into()),
        }
    }

    /// # Safety
    /// `view` is null or can be written, as Python promises.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if !slf.get().is_plain() {
            return Err(PyBufferError::new_err("points that only `numpy()` knows"));
        }
        // SAFETY: the caller's promise.
        unsafe { Tensor::__getbuffer__(slf.as_super(), view, flags) }
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let cloud = slf.get().0.get();
        let names: Vec<_> = cloud.fields().iter().map(Field::name).collect();
        let what = format!("of {} points ({})", cloud.len(), names.join(", "));
        let dtype = match is_alike(&cloud) {
            true => format!(", {}", cloud.tensor().dtype().numpy_name()),
            false => String::new(),
        };
        let read_only = if slf.as_super().get().writable() { "" } else { ", read-only" };
        let (memory, header) = (cloud.tensor().memory(), shown(cloud.header()));
        format!("<cenote.{} {what}{dtype}, {memory}{read_only}{header}>", cenote::PointCloud::NAME)
    }

    /// Pickled with its points; between processes of `multiprocessing` it goes by descriptor.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Result<(Bound<'py, PyAny>, Pickled)> {
        let cloud = slf.get().0.get();
        let again = PyType::new::<Self>(slf.py()).getattr("_unpickle")?;
        let (header, len, fields) = (parts(cloud.header()), cloud.len(), slf.get().fields());
        let tensor = Py::new(slf.py(), Tensor(cloud.into_tensor()))?;
        Ok((again, (tensor, header, len, fields)))
    }

    /// What `__reduce__` asks for.
    #[staticmethod]
    fn _unpickle(
        py: Python<'_>,
        tensor: &Bound<'_, Tensor>,
        header: HeaderParts,
        #[pyo3(from_py_with = size::len)] len: usize,
        fields: Vec<FieldParts>,
    ) -> Result<Py<PointCloud>> {
        let (frame_id, stamp_ns, seq) = header;
        let fields: Result<Vec<_>> = fields.iter().map(field_of).collect();
        let tensor = tensor.get().0.clone();
        let mut cloud = cenote::PointCloud::from_tensor_with_fields(tensor, &fields?)?;
        cloud.set_len(len)?;
        cloud.set_header(self::header(&frame_id, stamp_ns, seq)?);
        Ok(PointCloud::make(py, cloud)?)
    }
}

/// The arguments of `_unpickle`.
type Pickled = (Py<Tensor>, HeaderParts, usize, Vec<FieldParts>);

/// Name, dtype, count and offset.
type FieldParts = (String, String, u16, u32);

fn field_parts(field: &Field) -> FieldParts {
    // Both come from such numbers.
    let count = u16::try_from(field.count()).unwrap_or(u16::MAX);
    let offset = u32::try_from(field.offset()).unwrap_or(u32::MAX);
    (field.name().to_owned(), field.dtype().numpy_name().to_owned(), count, offset)
}

fn field_of((name, dtype, count, offset): &FieldParts) -> Result<Field> {
    Ok(Field::new(checked(name)?, dtype.parse()?).with_count(*count).at(*offset))
}

/// The name of a field. One that is too long no field has, so it could not be told later.
fn checked(name: &str) -> Result<&str> {
    if name.len() <= MAX_FIELD_NAME {
        return Ok(name);
    }
    let start: String = name.chars().take(MAX_FIELD_NAME).collect();
    let why = format!("has {} bytes, and {MAX_FIELD_NAME} are the most", name.len());
    Err(bad_argument(format!("the name of a field, {start:?} and so on, {why}")))
}

/// Whether the values of a point are all of one dtype, and nothing lies between them.
fn is_alike(cloud: &cenote::PointCloud) -> bool {
    let (tensor, mut end) = (cloud.tensor(), 0);
    let alike = |field: &Field| {
        let follows = field.dtype() == tensor.dtype() && field.offset() == end;
        end += field.count() * field.dtype().size();
        follows
    };
    cloud.fields().iter().all(alike) && tensor.shape()[1] * tensor.dtype().size() == end
}

/// The array of the points that there are.
fn points_array<'py>(
    py: Python<'py>,
    cloud: &cenote::PointCloud,
    wanted: Access,
) -> Result<Bound<'py, PyAny>> {
    let all = array(py, cloud.tensor(), wanted)?.into_any();
    let all = if is_alike(cloud) { all } else { structured(py, cloud, &all)? };
    match cloud.len() == cloud.capacity() {
        true => Ok(all),
        false => Ok(all.get_item(PySlice::new(py, 0, cloud.len().cast_signed(), 1))?),
    }
}

/// The array of points whose values are not alike.
fn structured<'py>(
    py: Python<'py>,
    cloud: &cenote::PointCloud,
    rows: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>> {
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
    let descr = descr_of(layout.as_any())?;
    let points = py_call::method(rows, "view", (descr,))?;
    Ok(points.get_item((index::ellipsis(py), 0))?)
}

/// A new cloud with the points of an array of a structured dtype.
fn copy_structured(array: &Bound<'_, PyUntypedArray>) -> Result<cenote::PointCloud> {
    let (py, points, fields) = (array.py(), array.shape()[0], fields_of(&array.dtype())?);
    let cloud = py.detach(|| cenote::PointCloud::with_fields(points, &fields))?;
    let target = points_array(py, &cloud, Access::Write)?;
    match is_alike(&cloud) {
        // An array that is not structured takes one column at a time.
        true => fields.iter().try_for_each(|field| copy_column(array, &cloud, field.name()))?,
        false => py_call::set_item(&target, index::ellipsis(py).as_any(), array.as_any())?,
    }
    Ok(cloud)
}

fn copy_column(
    array: &Bound<'_, PyUntypedArray>,
    cloud: &cenote::PointCloud,
    name: &str,
) -> Result<()> {
    if cloud.is_empty() {
        return Ok(());
    }
    let column = self::array(array.py(), &cloud.column(name)?, Access::Write)?;
    let everything = index::ellipsis(array.py());
    Ok(py_call::set_item(column.as_any(), everything.as_any(), &array.get_item(name)?)?)
}

/// As `PointCloud::new`, in a pool.
fn numbered_in(
    pool: &cenote::TensorPool,
    points: usize,
    values: usize,
    dtype: DType,
) -> cenote::Result<cenote::PointCloud> {
    let tensor = pool.alloc(&[points.max(1), values], dtype)?;
    let mut cloud = cenote::PointCloud::from_tensor(tensor)?;
    cloud.set_len(points)?;
    Ok(cloud)
}

/// The fields of a structured dtype. Where they lie is the cloud's business.
fn fields_of(descr: &Bound<'_, PyArrayDescr>) -> Result<Vec<Field>> {
    let names = descr.getattr("names")?;
    let Ok(names) = names.cast_into::<PyTuple>() else {
        return Err(bad_argument(format!("{descr} has no fields with names")));
    };
    let field = |name: Bound<'_, PyAny>| {
        let member = descr.get_item(&name)?;
        let shape: Vec<u16> = member.getattr("shape")?.extract()?;
        let base = member.getattr("base")?.cast_into::<PyArrayDescr>().map_err(PyErr::from)?;
        let count = shape.iter().try_fold(1_u16, |all, &each| all.checked_mul(each));
        let count = count.ok_or_else(|| bad_argument("a field with so many values"))?;
        let name = name.cast::<PyString>().map_err(PyErr::from)?;
        Ok(Field::new(checked(name.to_str()?)?, dtype::from_descr(&base)?).with_count(count))
    };
    names.iter().map(field).collect()
}
