//! Tensors for two libraries with special rules: torch has no read-only memory, and jax relies on memory that
//! does not change.

use cenote::Tensor;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::interop::dlpack::export::{Request, export};
use crate::interop::dlpack::structs::CPU;
use crate::interop::export::may_write;
use crate::runtime::error::{Raised, Result};
use crate::runtime::py_call;

/// A torch tensor over the same memory while that can be written, else a copy.
pub(crate) fn torch<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    let copy = copy.unwrap_or(!may_write(tensor));
    if !copy && !may_write(tensor) {
        return Err(refuse("torch would write it"));
    }
    let shim = DlpackShim { tensor: tensor.clone(), copy, never_writes: false };
    Ok(py_call::method(&py_call::import(py, "torch")?, "from_dlpack", (shim,))?)
}

/// A jax array over the same memory once that is immutable, else a copy.
pub(crate) fn jax<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    let copy = copy.unwrap_or(!tensor.is_immutable());
    if !copy && !tensor.is_immutable() {
        return Err(refuse("it may still be written, and jax relies on it not changing"));
    }
    let shim = DlpackShim { tensor: tensor.clone(), copy, never_writes: true };
    Ok(py_call::method(&py_call::import(py, "jax.dlpack")?, "from_dlpack", (shim,))?)
}

fn refuse(why: &str) -> Raised {
    PyBufferError::new_err(format!("cannot share the memory without a copy: {why}")).into()
}

/// What torch and jax get in place of the tensor. Its `__dlpack__` applies the decisions made above, which the
/// libraries cannot pass as arguments.
#[pyclass(frozen, module = "cenote._cenote")]
struct DlpackShim {
    tensor: Tensor,
    copy: bool,
    never_writes: bool,
}

#[pymethods]
impl DlpackShim {
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        // The CPU has no streams.
        let _ = stream;
        let copy = if self.copy { Some(true) } else { copy };
        let never_writes = self.never_writes;
        let request = Request { max_version, device: dl_device, copy, never_writes };
        export(py, &self.tensor, request)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        CPU
    }
}
