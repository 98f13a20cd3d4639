//! The protocols by which other libraries read and write a tensor, and pickling.
#![allow(unsafe_code, reason = "the buffer protocol is a C structure of pointers")]

use std::ffi::c_int;

use cenote::PixelFormat;
use numpy::PyUntypedArray;
use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::args::dtype;
use crate::interop::dlpack::export::{Request, export};
use crate::interop::dlpack::structs::CPU;
use crate::interop::export::{Access, Export};
use crate::interop::numpy_array::{array, converted};
use crate::interop::{buffer_protocol, torch_jax};
use crate::runtime::error::Result;
use crate::tensor::tensor::Tensor;

/// The arguments of `_unpickle`.
type Pickled<'py> = (Bound<'py, PyUntypedArray>, String, Option<String>);

#[pymethods]
impl Tensor {
    /// A torch tensor. It shares the memory while the tensor is writable; otherwise it is a copy, because
    /// torch has no read-only tensors. `copy=True` always copies, and `copy=False` fails instead of copying.
    #[pyo3(signature = (*, copy=None))]
    fn torch<'py>(&self, py: Python<'py>, copy: Option<bool>) -> Result<Bound<'py, PyAny>> {
        torch_jax::torch(py, &self.0, copy)
    }

    /// A jax array. It shares the memory once the tensor was sent or received; before that it is a copy,
    /// because jax relies on memory that does not change. `copy=True` always copies, and `copy=False` fails
    /// instead of copying. (jax itself copies memory with an alignment that it does not support.)
    #[pyo3(signature = (*, copy=None))]
    fn jax<'py>(&self, py: Python<'py>, copy: Option<bool>) -> Result<Bound<'py, PyAny>> {
        torch_jax::jax(py, &self.0, copy)
    }

    /// Used by `numpy.asarray` for dtypes that buffers do not have, such as bfloat16. The array is read-only;
    /// use `numpy()` to write.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        converted(array(py, &self.0, Access::Read)?, dtype, copy)
    }

    /// The old array interface, read-only; use `numpy()` to write.
    #[getter]
    pub(crate) fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let none = || PyAttributeError::new_err("the array interface has no such dtype");
        let kind = dtype::kind(self.0.dtype()).ok_or_else(none)?;
        let order = match self.0.dtype().size() {
            1 => '|',
            _ if cfg!(target_endian = "little") => '<',
            _ => '>',
        };
        let address = Export::new(&self.0, Access::Read)?.address();
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("strides", self.strides(py)?)?;
        interface.set_item("typestr", format!("{order}{kind}{}", self.0.dtype().size()))?;
        interface.set_item("data", (address.addr(), true))?;
        Ok(interface)
    }

    /// A capsule for `from_dlpack` of other libraries. It respects `max_version`, `dl_device` and `copy`;
    /// `stream` must be None.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("the CPU has no streams").into());
        }
        let request = Request { max_version, device: dl_device, copy, never_writes: false };
        export(py, &self.0, request)
    }

    /// `(1, 0)`: the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        CPU
    }

    /// # Safety
    /// `view` is null or can be written, as Python promises.
    pub(crate) unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: the caller's promise.
        unsafe { buffer_protocol::get(slf.py(), &slf.get().0, view, flags) }
    }

    /// Pickles the elements. Between processes of `multiprocessing` only a descriptor is sent instead.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Result<(Bound<'py, PyAny>, Pickled<'py>)> {
        let (py, tensor) = (slf.py(), &slf.get().0);
        let array = array(py, tensor, Access::Read)?;
        let format = tensor.format().map(|format| format.to_string());
        let unpickle = PyType::new::<Self>(py).getattr("_unpickle")?;
        Ok((unpickle, (array, tensor.device().to_string(), format)))
    }

    /// Makes the tensor again, from the values that `__reduce__` returned.
    #[staticmethod]
    fn _unpickle(
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        device: &str,
        format: Option<&str>,
    ) -> Result<Tensor> {
        let tensor = Tensor::from_numpy(py, array)?.with_device(device)?;
        match format {
            Some(format) => Ok(Tensor(tensor.0.with_format(format.parse::<PixelFormat>()?)?)),
            None => Ok(tensor),
        }
    }
}
