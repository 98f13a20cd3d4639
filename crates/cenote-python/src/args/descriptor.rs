//! A tensor's descriptor as an argument: `bytes`, or any object with a buffer.

use cenote::TensorDescriptor;
use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::runtime::error::{Raised, Result};
use crate::runtime::py_call;

/// A descriptor argument.
pub(crate) struct DescriptorArg(pub(crate) TensorDescriptor);

impl<'py> FromPyObject<'_, 'py> for DescriptorArg {
    type Error = Raised;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> Result<Self> {
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(DescriptorArg(TensorDescriptor::from_bytes(bytes.as_bytes())?));
        }
        let view = py_call::call(PyMemoryView::type_object(given.py()).as_any(), (given,), None)?;
        let bytes = py_call::method(&view, "tobytes", ())?;
        let bytes = bytes.cast::<PyBytes>().map_err(PyErr::from)?;
        Ok(DescriptorArg(TensorDescriptor::from_bytes(bytes.as_bytes())?))
    }
}
