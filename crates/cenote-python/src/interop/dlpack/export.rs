//! A capsule over a tensor's memory.
#![allow(unsafe_code, reason = "DLPack is C structures behind pointers")]

use std::mem::MaybeUninit;

use cenote::{MAX_DIMS, Tensor, TensorMemory};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::interop::dlpack::structs::{
    CPU, DLTensor, IS_COPIED, Legacy, Managed, READ_ONLY, Versioned, data_type,
};
use crate::interop::export::{Access, Export};
use crate::runtime::error::Result;
use crate::runtime::gil;

/// The arguments of `__dlpack__`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request {
    pub(crate) max_version: Option<(u32, u32)>,
    pub(crate) device: Option<(i32, i32)>,
    pub(crate) copy: Option<bool>,
    /// The consumer does not understand the flag for read-only memory, but it never writes.
    pub(crate) never_writes: bool,
}

/// Makes the capsule. Fails if the memory is read-only and the consumer would ignore that.
pub(crate) fn export<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    request: Request,
) -> Result<Bound<'py, PyAny>> {
    if request.device.is_some_and(|device| device != CPU) {
        return Err(PyBufferError::new_err("the memory is the CPU's: (1, 0)").into());
    }
    let is_copied = request.copy == Some(true);
    let is_versioned = request.max_version.is_some_and(|(major, _)| major >= 1);
    let copy = is_copied.then(|| copy_of(py, tensor)).transpose()?;
    let tensor = copy.as_ref().unwrap_or(tensor);
    let wanted = if request.never_writes { Access::Read } else { Access::WriteIfAllowed };
    let export = Export::new(tensor, wanted)?;
    let flag = |flag, is_set: bool| if is_set { flag } else { 0 };
    let flags = flag(READ_ONLY, !export.is_writable()) | flag(IS_COPIED, is_copied);
    let respects_flag = is_versioned && !is_called_by_torch(py);
    match export.is_writable() || request.never_writes || respects_flag {
        true if is_versioned => capsule::<Versioned>(py, export, flags),
        true => capsule::<Legacy>(py, export, flags),
        false => {
            let message = "the memory is read-only, and this library ignores that; use `jax()` or \
                           `torch()`, or request a copy (`copy=True`)";
            Err(PyBufferError::new_err(message).into())
        }
    }
}

/// A copy on the heap.
fn copy_of(py: Python<'_>, tensor: &Tensor) -> Result<Tensor> {
    Ok(gil::detach_if_large(py, tensor.nbytes(), || tensor.to_memory(TensorMemory::Mem))?)
}

/// Whether torch is the caller. It accepts read-only memory and then lets it be written, which would end the
/// process with a segmentation fault.
fn is_called_by_torch(py: Python<'_>) -> bool {
    // SAFETY: the thread holds the GIL, as `py` proves.
    let globals = unsafe { ffi::PyEval_GetGlobals() };
    // SAFETY: a reference borrowed from the calling frame, which outlives this call, or null.
    let globals = unsafe { Bound::from_borrowed_ptr_or_opt(py, globals) };
    let name = globals.and_then(|globals| globals.get_item("__name__").ok());
    let name = name.and_then(|name| name.extract::<String>().ok());
    name.is_some_and(|name| name == "torch" || name.starts_with("torch."))
}

fn capsule<M: Managed>(py: Python<'_>, export: Export, flags: u64) -> Result<Bound<'_, PyAny>> {
    let exported = exported::<M>(export, flags)?;
    // SAFETY: `exported` points into a live allocation, so the address of a field can be computed.
    let managed = unsafe { &raw mut (*exported).managed }.cast::<M>();
    // SAFETY: the pointer is not null, and the name is static. The destructor checks the capsule's name, so
    // it can be called whether the capsule was consumed or not.
    let made = unsafe { ffi::PyCapsule_New(managed.cast(), M::NAME.as_ptr(), Some(destroy::<M>)) };
    // SAFETY: the call returned a new reference, or null with an exception set.
    match unsafe { Bound::from_owned_ptr_or_err(py, made) } {
        Ok(capsule) => Ok(capsule),
        Err(error) => {
            // SAFETY: the pointer comes from a box, and no capsule has it.
            drop(unsafe { Box::from_raw(exported) });
            Err(error.into())
        }
    }
}

/// A managed tensor in a box, with the data that it points to.
struct Exported<M> {
    /// Written last, because it points to the other fields.
    managed: MaybeUninit<M>,
    _export: Export,
    shape: [i64; MAX_DIMS],
    strides: [i64; MAX_DIMS],
}

/// Makes the box for an export. The caller frees it.
fn exported<M: Managed>(export: Export, flags: u64) -> Result<*mut Exported<M>> {
    let (dtype, ndim) = (export.tensor().dtype(), export.tensor().ndim());
    let (data, dtype, ndim) = (export.address(), data_type(dtype)?, i32::try_from(ndim));
    let (shape, strides) = in_elements(export.tensor())?;
    let (managed, _export) = (MaybeUninit::uninit(), export);
    let exported = Box::into_raw(Box::new(Exported::<M> { managed, _export, shape, strides }));
    let (device_type, device_id) = CPU;
    let tensor = DLTensor {
        data: data.cast(),
        device_type,
        device_id,
        ndim: ndim.unwrap_or_default(),
        dtype,
        // SAFETY: `exported` points into a live allocation, so the address of a field can be computed. No
        // reference to the allocation exists: from now on only these pointers, and the code that frees it,
        // use it.
        shape: unsafe { &raw mut (*exported).shape }.cast(),
        // SAFETY: as for `shape`.
        strides: unsafe { &raw mut (*exported).strides }.cast(),
        byte_offset: 0,
    };
    // SAFETY: as for `shape`.
    let managed = unsafe { &raw mut (*exported).managed }.cast::<M>();
    // SAFETY: the field is aligned and writable, and its old value, which is uninitialized, needs no drop.
    unsafe { managed.write(M::new(exported.cast(), flags, tensor, delete)) };
    Ok(exported)
}

/// Shape and strides in elements, as DLPack counts. Fails if a stride is no multiple of an element.
fn in_elements(tensor: &Tensor) -> Result<([i64; MAX_DIMS], [i64; MAX_DIMS])> {
    let (mut shape, mut strides) = ([0; MAX_DIMS], [0; MAX_DIMS]);
    let item = tensor.dtype().size().cast_signed();
    for (axis, (&len, &stride)) in tensor.shape().iter().zip(tensor.strides()).enumerate() {
        if stride % item != 0 {
            let message = "DLPack counts strides in elements, and these are no multiple of one";
            return Err(PyBufferError::new_err(message).into());
        }
        shape[axis] = len.cast_signed() as i64;
        strides[axis] = (stride / item) as i64;
    }
    Ok((shape, strides))
}

/// Frees the box of [`exported`]. Needs no GIL.
///
/// # Safety
/// `managed` is null, or comes from a capsule of [`capsule`] and is not used after this call.
unsafe extern "C" fn delete<M: Managed>(managed: *mut M) {
    // SAFETY: null, or a managed tensor that `exported` has written.
    let Some(context) = (unsafe { managed.as_ref() }).map(M::context) else { return };
    // SAFETY: the context is the pointer of the box that contains `managed`. The box is freed once: a
    // consumer calls this once, and `destroy` calls it only if there was no consumer.
    drop(unsafe { Box::from_raw(context.cast::<Exported<M>>()) });
}

/// Frees the tensor of a capsule that was not consumed: such a capsule still has its first name.
unsafe extern "C" fn destroy<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python passes the capsule that it destroys. This call only compares names.
    if unsafe { ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) } == 0 {
        return;
    }
    // SAFETY: the capsule is valid under this name, as was just checked.
    let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()) };
    // SAFETY: no consumer took the tensor, so only this capsule has it.
    unsafe { delete(managed.cast::<M>()) };
}
