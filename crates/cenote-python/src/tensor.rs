//! `cenote.Tensor`.

use cenote::TensorOptions;
use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::array;
use crate::dtype::{self, DTypeArg};
use crate::error::Result;
use crate::export::Wanted;
use crate::shape::ShapeArg;

/// An array of elements of one type, in memory that other processes can see.
#[pyclass(frozen, weakref, module = "cenote")]
#[derive(Debug, Clone)]
pub(crate) struct Tensor(pub(crate) cenote::Tensor);

impl From<cenote::Tensor> for Tensor {
    fn from(tensor: cenote::Tensor) -> Self {
        Tensor(tensor)
    }
}

#[pymethods]
impl Tensor {
    #[new]
    #[pyo3(signature = (shape, dtype=DTypeArg(cenote::DType::F32)))]
    fn new(shape: ShapeArg, dtype: DTypeArg) -> Result<Tensor> {
        Ok(Tensor(TensorOptions::new().create(&shape, dtype.0)?))
    }

    /// The length of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// The distance in bytes from one element to the next, for each dimension.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.strides())
    }

    /// What its elements are, as numpy says it.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyArrayDescr>> {
        dtype::descr(py, self.0.dtype()).cloned()
    }

    /// The array over the same memory, without a copy.
    fn numpy<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        array(py, &self.0, Wanted::Either)
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: Bound<'_, PyAny>,
        value: Bound<'_, PyAny>,
    ) -> Result<()> {
        Ok(array(py, &self.0, Wanted::Write)?.set_item(key, value)?)
    }

    /// The elements in row-major order, copied.
    fn tobytes<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(array(py, &self.0, Wanted::Read)?.call_method0("tobytes")?)
    }
}

/// All copies of tensor bytes in this process so far.
#[pyfunction]
pub(crate) fn copies(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let counts = PyDict::new(py);
    for copies in cenote::copies() {
        counts.set_item(format!("{:?}", copies.reason), (copies.count, copies.bytes))?;
    }
    Ok(counts)
}
