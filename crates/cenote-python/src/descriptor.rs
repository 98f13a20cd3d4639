//! Descriptors as Python gives them: any bytes.

use cenote::TensorDescriptor;
use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::call;
use crate::error::{Raised, Result};

/// The descriptor of an argument.
pub(crate) struct DescriptorArg(pub(crate) TensorDescriptor);

impl<'py> FromPyObject<'_, 'py> for DescriptorArg {
    type Error = Raised;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> Result<Self> {
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(DescriptorArg(TensorDescriptor::from_bytes(bytes.as_bytes())?));
        }
        let view = call::call(PyMemoryView::type_object(given.py()).as_any(), (given,), None)?;
        let bytes = call::method(&view, "tobytes", ())?;
        let bytes = bytes.cast::<PyBytes>().map_err(PyErr::from)?;
        Ok(DescriptorArg(TensorDescriptor::from_bytes(bytes.as_bytes())?))
    }
}
