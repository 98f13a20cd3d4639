//! Buffers: `memoryview(tensor)`, `bytes(tensor)`, `socket.send(tensor)`, `numpy.asarray(tensor)`.
//!
//! All of them are to be read. A buffer says nothing about how long somebody goes on using it: a memoryview
//! can be released while an array that numpy made of it goes on writing, and numpy gives other buffers back at
//! once and keeps the pointer. So nothing that could write would stay counted, and who wants to write
//! uses `numpy()`.
//!
//! They are not of the tensor, but each of an object of its own, which has their shape and strides.
#![allow(unsafe_code, reason = "the buffer protocol is a C structure of pointers")]

use std::ffi::{CStr, c_int};
use std::ptr;

use cenote::{DType, MAX_DIMS, Tensor};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::interop::export::{Access, Export};

/// What a buffer is of: memory, and how it is laid out.
#[pyclass(frozen, module = "cenote._cenote")]
pub(crate) struct Buffer {
    export: Export,
    format: &'static CStr,
    shape: [ffi::Py_ssize_t; MAX_DIMS],
    strides: [ffi::Py_ssize_t; MAX_DIMS],
}

#[pymethods]
impl Buffer {
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

impl Buffer {
    fn new(tensor: &Tensor) -> PyResult<Buffer> {
        let format = format(tensor.dtype())?;
        let (mut shape, mut strides) = ([0; MAX_DIMS], [0; MAX_DIMS]);
        let sizes = shape.iter_mut().zip(tensor.shape());
        sizes.for_each(|(to, &from)| *to = from.cast_signed());
        strides.iter_mut().zip(tensor.strides()).for_each(|(to, &from)| *to = from);
        Ok(Buffer { export: Export::new(tensor, Access::Read)?, format, shape, strides })
    }
}

/// Fills in a buffer of `tensor`.
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
    let buffer = Buffer::new(tensor).map_err(refused)?;
    // SAFETY: the caller's promise.
    unsafe { fill(Bound::new(py, buffer)?, view, flags) }
}

/// Fills in a view of a buffer, which from then on holds the buffer.
///
/// # Safety
/// `view` is null or can be written.
unsafe fn fill(buffer: Bound<'_, Buffer>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    // SAFETY: the caller's promise.
    let Some(view) = (unsafe { view.as_mut() }) else {
        return Err(PyBufferError::new_err("no view to fill in"));
    };
    view.obj = ptr::null_mut();
    let Buffer { export, format, shape, strides } = buffer.get();
    let (tensor, asked) = (export.tensor(), |flag: c_int| flags & flag == flag);
    if asked(ffi::PyBUF_WRITABLE) {
        return Err(PyBufferError::new_err("buffers of tensors are read-only: write `numpy()`"));
    }
    check_layout(tensor, flags)?;
    let given = |is: bool, start: &[ffi::Py_ssize_t]| match is {
        true => start.as_ptr().cast_mut(),
        false => ptr::null_mut(),
    };
    view.buf = export.address().cast();
    view.len = tensor.nbytes().cast_signed();
    view.readonly = 1;
    view.itemsize = tensor.dtype().size().cast_signed();
    view.format =
        if asked(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { ptr::null_mut() };
    // Without a shape it is bytes in one row.
    view.ndim = if asked(ffi::PyBUF_ND) { c_int::try_from(tensor.ndim())? } else { 1 };
    // Never written: Python has no word for that.
    view.shape = given(asked(ffi::PyBUF_ND), shape);
    view.strides = given(asked(ffi::PyBUF_STRIDES), strides);
    view.suboffsets = ptr::null_mut();
    view.internal = ptr::null_mut();
    view.obj = buffer.into_ptr();
    Ok(())
}

/// Who does not understand strides, or wants a particular order of the elements, gets no other.
fn check_layout(tensor: &Tensor, flags: c_int) -> PyResult<()> {
    let asked = |flag: c_int| flags & flag == flag;
    let rows = tensor.layout().is_contiguous();
    let columns = || tensor.transpose().layout().is_contiguous();
    let fits = match () {
        () if asked(ffi::PyBUF_C_CONTIGUOUS) => rows,
        () if asked(ffi::PyBUF_F_CONTIGUOUS) => columns(),
        () if asked(ffi::PyBUF_ANY_CONTIGUOUS) => rows || columns(),
        () => rows || asked(ffi::PyBUF_STRIDES),
    };
    match fits {
        true => Ok(()),
        false => Err(PyBufferError::new_err("the elements do not lie side by side: copy it first")),
    }
}

/// The letter of the `struct` module.
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
            let message = format!("buffers know no {other}; use `numpy()` or `__dlpack__`");
            return Err(PyBufferError::new_err(message));
        }
    })
}
