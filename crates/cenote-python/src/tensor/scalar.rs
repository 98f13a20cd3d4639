//! A tensor of one element as a number: `int(t)`, `float(t)`, `if t:`.

use pyo3::PyTypeInfo;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyFloat, PyInt};

use crate::runtime::error::{Result, bad_argument};
use crate::runtime::py_call;
use crate::tensor::tensor::Tensor;

impl Tensor {
    /// The only element, as a Python number. Fails if there are several.
    fn only_element<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        match self.0.len() {
            1 => self.item(py),
            _ => Err(PyTypeError::new_err("only a tensor of one element is a number").into()),
        }
    }
}

#[pymethods]
impl Tensor {
    /// `int(t)`, of a tensor with one element.
    fn __int__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(py_call::call(PyInt::type_object(py).as_any(), (self.only_element(py)?,), None)?)
    }

    /// `float(t)`, of a tensor with one element.
    fn __float__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(py_call::call(PyFloat::type_object(py).as_any(), (self.only_element(py)?,), None)?)
    }

    /// `complex(t)`, of a tensor with one element.
    fn __complex__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(py_call::call(PyComplex::type_object(py).as_any(), (self.only_element(py)?,), None)?)
    }

    /// The tensor as an index. As in numpy it must be an integer and have no dimensions.
    fn __index__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let is_scalar = self.0.ndim() == 0;
        let refused = || PyTypeError::new_err("only an integer of no dimensions is an index");
        Ok(py_call::index(&is_scalar.then(|| self.item(py)).ok_or_else(refused)??)?)
    }

    /// Whether the only element is true. Fails if there are several, as in numpy.
    fn __bool__(&self, py: Python<'_>) -> Result<bool> {
        match self.0.len() {
            1 => Ok(self.item(py)?.is_truthy()?),
            several => Err(bad_argument(format!(
                "whether {several} elements are true is ambiguous: use `is not None`, or `numpy().any()`"
            ))),
        }
    }
}
