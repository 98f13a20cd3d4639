//! Buffers: `memoryview(tensor)`, `bytes(tensor)`, `socket.send(tensor)`, `numpy.asarray(tensor)`.
//!
//! Who asks to write gets a loan, or a `BufferError`. Who asks for everything there is to know, as
//! `memoryview` does, gets one where that may be; who asks for plain bytes only reads.
#![allow(unsafe_code, reason = "the buffer protocol is a C structure of pointers")]

use std::ffi::{CStr, c_int};

use cenote::{DType, MAX_DIMS, Tensor};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::export::{Export, Wanted};

/// What a buffer points to, for as long as it is not released.
struct Lent {
    export: Export,
    shape: [ffi::Py_ssize_t; MAX_DIMS],
    strides: [ffi::Py_ssize_t; MAX_DIMS],
}

/// Fills in a buffer of `tensor`, which `object` stands for.
///
/// # Safety
/// `view` is null or can be written.
pub(crate) unsafe fn get(
    object: Bound<'_, PyAny>,
    tensor: &Tensor,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: the caller's promise.
    let Some(view) = (unsafe { view.as_mut() }) else {
        return Err(PyBufferError::new_err("no view to fill in"));
    };
    view.obj = std::ptr::null_mut();
    let format = format(tensor.dtype())?;
    check_layout(tensor, flags)?;
    let export = Export::new(tensor, wanted(flags)).map_err(|refused| {
        let refused = PyErr::from(refused);
        PyBufferError::new_err(refused.value(object.py()).to_string())
    })?;
    let mut lent = Box::new(Lent { export, shape: [0; MAX_DIMS], strides: [0; MAX_DIMS] });
    let sizes = lent.shape.iter_mut().zip(tensor.shape());
    sizes.for_each(|(to, &from)| *to = from.cast_signed());
    lent.strides.iter_mut().zip(tensor.strides()).for_each(|(to, &from)| *to = from);

    let asked = |flag: c_int| flags & flag == flag;
    view.buf = lent.export.address().cast();
    view.len = tensor.nbytes().cast_signed();
    view.readonly = c_int::from(!lent.export.is_writable());
    view.itemsize = tensor.dtype().size().cast_signed();
    view.format = std::ptr::null_mut();
    if asked(ffi::PyBUF_FORMAT) {
        view.format = format.as_ptr().cast_mut();
    }
    // Without a shape it is bytes in one row.
    view.ndim = if asked(ffi::PyBUF_ND) { c_int::try_from(tensor.ndim())? } else { 1 };
    view.shape = if asked(ffi::PyBUF_ND) { lent.shape.as_mut_ptr() } else { std::ptr::null_mut() };
    view.strides = std::ptr::null_mut();
    if asked(ffi::PyBUF_STRIDES) {
        view.strides = lent.strides.as_mut_ptr();
    }
    view.suboffsets = std::ptr::null_mut();
    view.internal = Box::into_raw(lent).cast();
    view.obj = object.into_ptr();
    Ok(())
}

/// Takes a buffer back.
///
/// # Safety
/// [`get`] filled it in, and it was not taken back before.
pub(crate) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: the caller's promise: it is the view of `get`.
    let internal = unsafe { (*view).internal };
    // SAFETY: and there it was put, once.
    drop(unsafe { Box::from_raw(internal.cast::<Lent>()) });
}

fn wanted(flags: c_int) -> Wanted {
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        Wanted::Write
    } else if flags & ffi::PyBUF_FULL_RO == ffi::PyBUF_FULL_RO {
        Wanted::Either
    } else {
        Wanted::Read
    }
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
