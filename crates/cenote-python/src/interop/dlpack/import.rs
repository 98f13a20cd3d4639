//! A tensor over the memory of another library's capsule.
#![allow(unsafe_code, reason = "DLPack is C structures behind pointers")]

use std::ptr::NonNull;
use std::slice;

use cenote::{DType, Layout, MAX_DIMS, Tensor};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict};

use crate::interop::anchored::anchored;
use crate::interop::dlpack::structs::{
    DLTensor, Deleter, Legacy, Managed, VERSION, Versioned, dtype_of, is_host_memory,
};
use crate::runtime::error::{Result, bad_argument};
use crate::runtime::py_call;

/// A read-only tensor over the producer's memory, or with `copy` a writable copy of it.
pub(crate) fn import(producer: &Bound<'_, PyAny>, copy: Option<bool>) -> Result<Tensor> {
    let py = producer.py();
    let (device, _): (i32, i32) = py_call::method(producer, "__dlpack_device__", ())?.extract()?;
    if !is_host_memory(device) {
        let message = format!("the memory is that of another device ({device}), not of the CPU");
        return Err(PyBufferError::new_err(message).into());
    }
    let tensor = consume(request_capsule(producer, copy)?)?;
    // The copy is made here, not by the producer: so it is certain that nothing else can write it.
    match copy {
        Some(true) => Ok(py.detach(|| tensor.to_pooled())?),
        _ => Ok(tensor),
    }
}

/// Calls `__dlpack__` of the producer.
fn request_capsule<'py>(
    producer: &Bound<'py, PyAny>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = producer.py();
    let options = PyDict::new(py);
    options.set_item("max_version", (VERSION.major, VERSION.minor))?;
    if copy == Some(false) {
        options.set_item("copy", copy)?;
    }
    match py_call::call(&py_call::attribute(producer, "__dlpack__")?, (), Some(&options)) {
        // A producer from before 2023 does not accept these arguments. It does not copy.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            py_call::method(producer, "__dlpack__", ())
        }
        capsule => capsule,
    }
}

fn consume(capsule: Bound<'_, PyAny>) -> Result<Tensor> {
    let capsule = capsule.cast_into::<PyCapsule>().map_err(PyErr::from)?;
    if capsule.is_valid_checked(Some(Versioned::NAME)) {
        adopt::<Versioned>(&capsule)
    } else {
        adopt::<Legacy>(&capsule)
    }
}

/// Takes the managed tensor out of a capsule. The tensor calls the producer's deleter when it is dropped.
fn adopt<M: Managed + 'static>(capsule: &Bound<'_, PyCapsule>) -> Result<Tensor> {
    let pointer = capsule.pointer_checked(Some(M::NAME))?.cast::<M>();
    // SAFETY: by DLPack's convention a capsule of this name has a managed tensor of this kind.
    let managed = unsafe { pointer.as_ref() };
    if !managed.is_supported() {
        return Err(PyBufferError::new_err("the tensor is of another version of DLPack").into());
    }
    let (tensor, release) = (*managed.tensor(), Release { pointer, deleter: managed.deleter() });
    let (start, layout, dtype) = layout_of(&tensor)?;
    // From here on the tensor is this function's to free. SAFETY: the name is static.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), M::USED_NAME.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()).into());
    }
    let len = layout.byte_range().end;
    let on_drop = move || release.call();
    // SAFETY: the producer keeps the elements valid until its deleter is called. They are in the `len` bytes
    // from `start` on.
    Ok(unsafe { Tensor::from_changeable_parts(start, len, layout, dtype, on_drop) }?)
}

/// Returns a managed tensor to its producer.
struct Release<M> {
    pointer: NonNull<M>,
    deleter: Option<Deleter<M>>,
}

// SAFETY: DLPack allows every thread to call a deleter. The deleter itself takes the locks that it needs,
// such as the GIL.
unsafe impl<M> Send for Release<M> {}

impl<M> Release<M> {
    fn call(self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: `adopt` took the tensor, and this call consumes `self`: so the deleter is called once.
            unsafe { deleter(self.pointer.as_ptr()) };
        }
    }
}

/// The lowest address of the elements, the layout from there, and the dtype.
fn layout_of(tensor: &DLTensor) -> Result<(NonNull<u8>, Layout, DType)> {
    let bad = |message: &'static str| PyValueError::new_err(message);
    // Checked again: `__dlpack_device__` may have returned something else.
    if !is_host_memory(tensor.device_type) {
        return Err(PyBufferError::new_err("the memory is that of another device").into());
    }
    let dtype = dtype_of(tensor.dtype)?;
    let length = |&len: &i64| usize::try_from(len).map_err(|_| bad("a length is negative"));
    let shape = numbers(tensor.shape, tensor.ndim)?.unwrap_or_default();
    let shape = shape.iter().map(length).collect::<PyResult<Vec<_>>>()?;
    let stride =
        |&stride: &i64| isize::try_from(stride).ok()?.checked_mul(dtype.size().cast_signed());
    let (below, layout) = match numbers(tensor.strides, tensor.ndim)? {
        None => (0, Layout::contiguous(&shape, dtype.size())?),
        Some(strides) => {
            let strides = strides.iter().map(stride).collect::<Option<Vec<_>>>();
            anchored(&shape, &strides.ok_or_else(|| bad("a stride is too large"))?, dtype.size())?
        }
    };
    let offset = isize::try_from(tensor.byte_offset).map_err(|_| bad("the offset is too large"))?;
    let start = tensor.data.cast::<u8>().wrapping_offset(offset).wrapping_sub(below);
    let start = NonNull::new(start).filter(|_| !tensor.data.is_null());
    Ok((start.ok_or_else(|| bad("the capsule has no memory"))?, layout, dtype))
}

/// One number for each dimension; `None` if the pointer is null.
fn numbers(start: *const i64, ndim: i32) -> Result<Option<Vec<i64>>> {
    let ndim = usize::try_from(ndim).ok().filter(|&ndim| ndim <= MAX_DIMS);
    let ndim = ndim.ok_or_else(|| bad_argument(format!("more than {MAX_DIMS} dimensions")))?;
    if start.is_null() {
        return Ok(None);
    }
    // SAFETY: by DLPack's convention the array has one number for each dimension.
    Ok(Some(unsafe { slice::from_raw_parts(start, ndim) }.to_vec()))
}
