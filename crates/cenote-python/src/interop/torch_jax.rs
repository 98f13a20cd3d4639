//! Tensors for libraries that have rules of their own: torch, which knows no read-only memory, and jax,
//! which relies on memory not changing.

use cenote::Tensor;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::interop::dlpack::{self, Request};
use crate::interop::export::may_write;
use crate::runtime::error::{Raised, Result};
use crate::runtime::py_call;

/// Over the same memory while that can be written, else a copy.
pub(crate) fn torch<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    let copied = copy.unwrap_or(!may_write(tensor));
    if !copied && !may_write(tensor) {
        return Err(refuse("torch would write it"));
    }
    let shim = Shim { tensor: tensor.clone(), copy: copied, trusted: false };
    Ok(py_call::method(&py_call::import(py, "torch")?, "from_dlpack", (shim,))?)
}

/// Over the same memory once that cannot change any more, else a copy.
pub(crate) fn jax<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    let copied = copy.unwrap_or(!tensor.is_settled());
    if !copied && !tensor.is_settled() {
        return Err(refuse("it may still be written, and jax relies on it not changing"));
    }
    let shim = Shim { tensor: tensor.clone(), copy: copied, trusted: true };
    Ok(py_call::method(&py_call::import(py, "jax.dlpack")?, "from_dlpack", (shim,))?)
}

fn refuse(why: &str) -> Raised {
    PyBufferError::new_err(format!("not without a copy: {why}")).into()
}

/// Stands in for a tensor where a library does not say what it can take.
#[pyclass(frozen, module = "cenote._cenote")]
struct Shim {
    tensor: Tensor,
    copy: bool,
    /// The library never writes.
    trusted: bool,
}

#[pymethods]
impl Shim {
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = stream; // of a device that the memory is not on
        let copy = if self.copy { Some(true) } else { copy };
        let request = Request { max_version, device: dl_device, copy, trusted: self.trusted };
        dlpack::export(py, &self.tensor, request)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }
}
