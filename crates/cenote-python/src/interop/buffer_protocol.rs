//! Buffers: `memoryview(tensor)`, `bytes(tensor)`, `socket.send(tensor)`, `numpy.asarray(tensor)`.
//!
//! All buffers are read-only, because the protocol does not say how long a consumer uses the pointer. A
//! memoryview can be released while an array that numpy made of it is still in use, and numpy releases other
//! buffers at once but keeps the pointer. So a writable buffer could be written without a loan. Python code
//! uses `numpy()` to write.
//!
//! The object behind a buffer is not the tensor but a separate [`BufferOwner`], which has the shape and
//! strides that the buffer points to.
#![allow(unsafe_code, reason = "the buffer protocol is a C structure of pointers")]

use std::ffi::{CStr, c_int};
use std::ptr;

use cenote::{DType, MAX_DIMS, Tensor};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::interop::export::{Access, Export};

/// The object behind a buffer: it keeps the memory, and the layout that the buffer points to.
#[pyclass(frozen, module = "cenote._cenote")]
pub(crate) struct BufferOwner {
    export: Export,
    format: &'static CStr,
    shape: [ffi::Py_ssize_t; MAX_DIMS],
    strides: [ffi::Py_ssize_t; MAX_DIMS],
}

#[pymethods]
impl BufferOwner {
    fn __repr__(&self) -> String {
        format!("<buffer of {:?}>", self.export.tensor())
    }

    /// # Safety
    /// `view` is null or can be written, as Python promises.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: the caller's promise.
        unsafe { fill(slf, view, flags) }
    }
}

impl BufferOwner {
    fn new(tensor: &Tensor) -> PyResult<BufferOwner> {
        let format = format(tensor.dtype())?;
        let (mut shape, mut strides) = ([0; MAX_DIMS], [0; MAX_DIMS]);
        let sizes = shape.iter_mut().zip(tensor.shape());
        sizes.for_each(|(to, &from)| *to = from.cast_signed());
        strides.iter_mut().zip(tensor.strides()).for_each(|(to, &from)| *to = from);
        Ok(BufferOwner { export: Export::new(tensor, Access::Read)?, format, shape, strides })
    }
}

/// Fills in a buffer of the tensor. Fails if the consumer wants to write, or needs another layout.
///
/// # Safety
/// `view` is null or can be written.
pub(crate) unsafe fn get(
    py: Python<'_>,
    tensor: &Tensor,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let refused = |error: PyErr| PyBufferError::new_err(error.value(py).to_string());
    let buffer = BufferOwner::new(tensor).map_err(refused)?;
    // SAFETY: the caller's promise.
    unsafe { fill(Bound::new(py, buffer)?, view, flags) }
}

/// Fills in a view, which holds a reference to `buffer` until the consumer releases it.
///
/// # Safety
/// `view` is null or can be written.
unsafe fn fill(
    buffer: Bound<'_, BufferOwner>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: the caller's promise.
    let Some(view) = (unsafe { view.as_mut() }) else {
        return Err(PyBufferError::new_err("no view to fill in"));
    };
    view.obj = ptr::null_mut();
    let BufferOwner { export, format, shape, strides } = buffer.get();
    let (tensor, wants) = (export.tensor(), |flag: c_int| flags & flag == flag);
    if wants(ffi::PyBUF_WRITABLE) {
        return Err(PyBufferError::new_err(
            "buffers of tensors are read-only: use `numpy()` to write",
        ));
    }
    check_layout(tensor, flags)?;
    let pointer = |is_wanted: bool, start: &[ffi::Py_ssize_t]| match is_wanted {
        true => start.as_ptr().cast_mut(),
        false => ptr::null_mut(),
    };
    view.buf = export.address().cast();
    view.len = tensor.nbytes().cast_signed();
    view.readonly = 1;
    view.itemsize = tensor.dtype().size().cast_signed();
    view.format =
        if wants(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { ptr::null_mut() };
    // A consumer that wants no shape gets one dimension of bytes.
    view.ndim = if wants(ffi::PyBUF_ND) { c_int::try_from(tensor.ndim())? } else { 1 };
    // Consumers never write shape and strides, although the C structure's pointers are not const.
    view.shape = pointer(wants(ffi::PyBUF_ND), shape);
    view.strides = pointer(wants(ffi::PyBUF_STRIDES), strides);
    view.suboffsets = ptr::null_mut();
    view.internal = ptr::null_mut();
    view.obj = buffer.into_ptr();
    Ok(())
}

/// Fails if the consumer needs contiguous elements, or an order of the elements that the tensor does not have.
fn check_layout(tensor: &Tensor, flags: c_int) -> PyResult<()> {
    let wants = |flag: c_int| flags & flag == flag;
    let rows = tensor.layout().is_contiguous();
    let columns = || tensor.transpose().layout().is_contiguous();
    let fits = match () {
        () if wants(ffi::PyBUF_C_CONTIGUOUS) => rows,
        () if wants(ffi::PyBUF_F_CONTIGUOUS) => columns(),
        () if wants(ffi::PyBUF_ANY_CONTIGUOUS) => rows || columns(),
        () => rows || wants(ffi::PyBUF_STRIDES),
    };
    match fits {
        true => Ok(()),
        false => Err(PyBufferError::new_err("the elements are not contiguous: copy it first")),
    }
}

/// The letter for a dtype in the module `struct`. Fails for bfloat16, which has none.
fn format(dtype: DType) -> PyResult<&'static CStr> {
    Ok(match dtype {
        DType::F32 => c"f",
        DType::F64 => c"d",
        DType::F16 => c"e",
        DType::I8 => c"b",
        DType::I16 => c"h",
        DType::I32 => c"i",
        DType::I64 => c"q",
        DType::U8 => c"B",
        DType::U16 => c"H",
        DType::U32 => c"I",
        DType::U64 => c"Q",
        DType::Bool => c"?",
        DType::Complex64 => c"Zf",
        DType::Complex128 => c"Zd",
        other => {
            let message = format!("buffers have no {other}; use `numpy()` or `__dlpack__`");
            return Err(PyBufferError::new_err(message));
        }
    })
}
