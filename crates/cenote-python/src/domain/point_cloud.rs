//! `cenote.PointCloud`.
#![allow(unsafe_code, reason = "the buffer protocol is a C structure of pointers")]

use std::ffi::c_int;

use cenote::{DType, Domain, Field};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyString, PyType};

use crate::args::dtype::{self, DTypeArg, descr_of};
use crate::args::integer::{count, size};
use crate::args::shape::tuple;
use crate::domain::class::{LockedValue, domain_class};
use crate::domain::header::{HeaderParts, header, parts, shown};
use crate::domain::point_fields::{
    FieldParts, field_of, field_parts, fields_of, is_structured, is_uniform, structured_dtype,
};
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
/// A new cloud is filled with zeros. A point has `values` values of one dtype: `x`, `y`, `z`, `intensity`,
/// then `f4`, `f5` and so on. With `fields`, names and dtypes are those of a structured dtype, as for
/// `numpy.dtype`. If the fields have different dtypes, the cloud's array is structured:
///
/// >>> cloud = cenote.PointCloud(100, fields=[("x", "f4"), ("y", "f4"), ("z", "f4"), ("ring", "u2")])
/// >>> cloud.numpy().dtype.names
/// ('x', 'y', 'z', 'ring')
///
/// The memory is in the pool of this process, or in `pool`, where the points show old bytes until you write
/// them.
#[pyclass(frozen, extends = Tensor, module = "cenote")]
#[derive(Debug)]
pub(crate) struct PointCloud(pub(crate) LockedValue<cenote::PointCloud>);

domain_class!(PointCloud, cenote::PointCloud);

impl PointCloud {
    /// The tensor that Python code sees: the points up to the cloud's length. A cloud without points shows
    /// all its capacity instead, because no tensor is empty.
    fn base_of(cloud: &cenote::PointCloud) -> cenote::Tensor {
        let tensor = cloud.tensor();
        if cloud.len() == cloud.capacity() {
            return tensor.clone();
        }
        tensor.narrow(0, 0, cloud.len()).unwrap_or_else(|_| tensor.clone())
    }
}

impl PointCloud {
    /// Whether the tensor that Python code sees has exactly the values of the points.
    fn is_plain(&self) -> bool {
        let cloud = self.0.lock();
        !cloud.is_empty() && is_uniform(&cloud)
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
            (None, Some(pool)) => new_in_pool(&pool, points, values, dtype.0),
            (None, None) => cenote::PointCloud::new(points, values, dtype.0),
        });
        let mut cloud = made?;
        cloud.set_header(header);
        Ok(PointCloud::init(cloud))
    }

    /// A cloud with a copy of an array of shape `(points, values)`, or `(points,)` with a structured dtype.
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
        let mut cloud = match (is_structured(&array)?, array.shape()) {
            (true, [_]) => copy_structured(&array)?,
            (false, &[0, values]) => {
                cenote::PointCloud::new(0, values, dtype::from_descr(&array.dtype())?)?
            }
            (false, &[_, _]) => {
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

    /// A cloud over a tensor of shape `(points, values)`, without a copy.
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

    /// How many points the memory has room for.
    #[getter]
    fn capacity(&self) -> usize {
        self.0.lock().capacity()
    }

    /// The fields of a point. Of each: name, dtype, number of values, and offset in bytes.
    ///
    /// >>> cenote.PointCloud(1, 2).fields
    /// [('x', 'float32', 1, 0), ('y', 'float32', 1, 4)]
    #[getter]
    fn fields(&self) -> Vec<FieldParts> {
        self.0.lock().fields().iter().map(field_parts).collect()
    }

    /// An array over the same memory, without a copy: of shape `(points, values)`, or `(points,)` with a
    /// structured dtype if the fields have different dtypes. Otherwise as `Tensor.numpy`.
    fn numpy<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        points_array(py, &self.0.get(), Access::WriteIfAllowed)
    }

    /// The values of a field for all points, without a copy; `cloud["x"]` is the same. Fails for a cloud
    /// without points.
    fn column(&self, name: &str) -> Result<Tensor> {
        Ok(Tensor(self.0.with(|cloud| cloud.column(name))?))
    }

    /// The coordinates, of shape `(points, 3)`, without a copy. Fails if `x`, `y` and `z` do not have one
    /// dtype and equal distances, and for a cloud without points.
    fn xyz(&self) -> Result<Tensor> {
        Ok(Tensor(self.0.with(|cloud| cloud.xyz())?))
    }

    fn __len__(&self) -> usize {
        self.0.lock().len()
    }

    /// A field by its name, or a view as of `Tensor`.
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

    /// The old array interface. Fails if the points need a structured dtype, or if there are none.
    #[getter]
    fn __array_interface__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyDict>> {
        match slf.get().is_plain() {
            true => slf.as_super().get().__array_interface__(slf.py()),
            false => Err(PyAttributeError::new_err(
                "the points need a structured dtype, or there are none: use `numpy()`",
            )
            .into()),
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
            return Err(PyBufferError::new_err(
                "the points need a structured dtype, or there are none: use `numpy()`",
            ));
        }
        // SAFETY: the caller's promise.
        unsafe { Tensor::__getbuffer__(slf.as_super(), view, flags) }
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let cloud = slf.get().0.get();
        let names: Vec<_> = cloud.fields().iter().map(Field::name).collect();
        let what = format!("of {} points ({})", cloud.len(), names.join(", "));
        let dtype = match is_uniform(&cloud) {
            true => format!(", {}", cloud.tensor().dtype().numpy_name()),
            false => String::new(),
        };
        let read_only = if slf.as_super().get().writable() { "" } else { ", read-only" };
        let (memory, header) = (cloud.tensor().memory(), shown(cloud.header()));
        format!("<cenote.{} {what}{dtype}, {memory}{read_only}{header}>", cenote::PointCloud::NAME)
    }

    /// Pickles the points. Between processes of `multiprocessing` only a descriptor is sent instead.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Result<(Bound<'py, PyAny>, Pickled)> {
        let cloud = slf.get().0.get();
        let unpickle = PyType::new::<Self>(slf.py()).getattr("_unpickle")?;
        let (header, len, fields) = (parts(cloud.header()), cloud.len(), slf.get().fields());
        let tensor = Py::new(slf.py(), Tensor(cloud.into_tensor()))?;
        Ok((unpickle, (tensor, header, len, fields)))
    }

    /// Makes the cloud again, from the values that `__reduce__` returned.
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

/// The array of all points.
fn points_array<'py>(
    py: Python<'py>,
    cloud: &cenote::PointCloud,
    wanted: Access,
) -> Result<Bound<'py, PyAny>> {
    let all = array(py, cloud.tensor(), wanted)?.into_any();
    let all = if is_uniform(cloud) { all } else { structured(py, cloud, &all)? };
    match cloud.len() == cloud.capacity() {
        true => Ok(all),
        false => Ok(all.get_item(PySlice::new(py, 0, cloud.len().cast_signed(), 1))?),
    }
}

/// The rows of a cloud's tensor as an array of structured points.
fn structured<'py>(
    py: Python<'py>,
    cloud: &cenote::PointCloud,
    rows: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>> {
    let points = py_call::method(rows, "view", (structured_dtype(py, cloud)?,))?;
    Ok(points.get_item((index::ellipsis(py), 0))?)
}

/// A cloud with a copy of an array of a structured dtype.
fn copy_structured(array: &Bound<'_, PyUntypedArray>) -> Result<cenote::PointCloud> {
    let (py, points, fields) = (array.py(), array.shape()[0], fields_of(&array.dtype())?);
    let cloud = py.detach(|| cenote::PointCloud::with_fields(points, &fields))?;
    let target = points_array(py, &cloud, Access::Write)?;
    match is_uniform(&cloud) {
        // The target has no structured dtype, so it is filled one column at a time.
        true => fields.iter().try_for_each(|field| copy_column(array, &cloud, field.name()))?,
        false => py_call::set_item(&target, index::ellipsis(py).as_any(), array.as_any())?,
    }
    Ok(cloud)
}

/// Copies one field of a structured array.
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

/// As `cenote::PointCloud::new`, in a pool.
fn new_in_pool(
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
