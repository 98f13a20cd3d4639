//! DLPack: tensors as capsules for jax, torch, numpy and others, and theirs as tensors.
//!
//! The structures are those of `dlpack.h`, version 1.0. A capsule that can say so says that memory is
//! read-only; one that cannot is only made of memory that may be written.
#![allow(unsafe_code, reason = "DLPack is C structures behind pointers")]

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

use cenote::{DType, Layout, MAX_DIMS, Tensor, TensorMemory};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict};

use crate::interop::export::{Access, Export};
use crate::runtime::error::{Result, bad_argument, raise};
use crate::runtime::gil;
use crate::runtime::py_call;

/// `kDLCPU`.
pub(crate) const CPU: (i32, i32) = (1, 0);
/// `kDLCUDAHost`: memory of the host that a GPU can read.
const CUDA_HOST: i32 = 3;

const VERSION: Version = Version { major: 1, minor: 0 };
const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

const LEGACY: &CStr = c"dltensor";
const LEGACY_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct DLTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    /// In elements; null if they lie side by side.
    strides: *mut i64,
    byte_offset: u64,
}

/// Either kind of managed tensor, told apart by the capsule's name.
trait Managed: Sized {
    const NAME: &'static CStr;
    const USED: &'static CStr;

    fn new(context: *mut c_void, flags: u64, tensor: DLTensor) -> Self;
    fn context(&self) -> *mut c_void;
    fn tensor(&self) -> &DLTensor;
    /// Another major version is not to be looked at.
    fn is_known(&self) -> bool;
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

#[repr(C)]
#[derive(Debug)]
struct Legacy {
    tensor: DLTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

impl Managed for Legacy {
    const NAME: &'static CStr = LEGACY;
    const USED: &'static CStr = LEGACY_USED;

    fn new(context: *mut c_void, _flags: u64, tensor: DLTensor) -> Self {
        Legacy { tensor, context, deleter: Some(delete) }
    }

    fn context(&self) -> *mut c_void {
        self.context
    }

    fn tensor(&self) -> &DLTensor {
        &self.tensor
    }

    fn is_known(&self) -> bool {
        true
    }

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

#[repr(C)]
#[derive(Debug)]
struct Versioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DLTensor,
}

impl Managed for Versioned {
    const NAME: &'static CStr = VERSIONED;
    const USED: &'static CStr = VERSIONED_USED;

    fn new(context: *mut c_void, flags: u64, tensor: DLTensor) -> Self {
        Versioned { version: VERSION, context, deleter: Some(delete), flags, tensor }
    }

    fn context(&self) -> *mut c_void {
        self.context
    }

    fn tensor(&self) -> &DLTensor {
        &self.tensor
    }

    fn is_known(&self) -> bool {
        self.version.major == VERSION.major
    }

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

/// A managed tensor of ours, and what it points to.
struct Exported<M> {
    /// Written as soon as the place of the rest is known.
    managed: MaybeUninit<M>,
    _export: Export,
    shape: [i64; MAX_DIMS],
    strides: [i64; MAX_DIMS],
}

/// What `__dlpack__` is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request {
    pub(crate) max_version: Option<(u32, u32)>,
    pub(crate) device: Option<(i32, i32)>,
    pub(crate) copy: Option<bool>,
    /// For consumers that cannot be told that memory is read-only, and never write.
    pub(crate) trusted: bool,
}

/// The capsule of a tensor.
pub(crate) fn export<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    request: Request,
) -> Result<Bound<'py, PyAny>> {
    if request.device.is_some_and(|device| device != CPU) {
        return Err(PyBufferError::new_err("the memory is the CPU's: (1, 0)").into());
    }
    let copied = request.copy == Some(true);
    let versioned = request.max_version.is_some_and(|(major, _)| major >= 1);
    let copy = copied.then(|| copy_of(py, tensor)).transpose()?;
    let tensor = copy.as_ref().unwrap_or(tensor);
    let wanted = if request.trusted { Access::Read } else { Access::WriteIfAllowed };
    let export = Export::new(tensor, wanted)?;
    let flag = |flag, is: bool| if is { flag } else { 0 };
    let flags = flag(READ_ONLY, !export.is_writable()) | flag(IS_COPIED, copied);
    let understood = export.is_writable() || request.trusted || (versioned && !is_deaf(py));
    match understood {
        true if versioned => capsule::<Versioned>(py, export, flags),
        true => capsule::<Legacy>(py, export, flags),
        false => {
            let message = "the memory is read-only, and this library does not ask, or heed it; use \
                           `jax()` or `torch()`, or ask for a copy (`copy=True`)";
            Err(PyBufferError::new_err(message).into())
        }
    }
}

/// A copy of this process's own.
fn copy_of(py: Python<'_>, tensor: &Tensor) -> Result<Tensor> {
    Ok(gil::detach_if_large(py, tensor.nbytes(), || tensor.to_memory(TensorMemory::Mem))?)
}

/// Whether we are called by a library that takes read-only memory and lets it be written, as torch
/// does: that would be the end of the process.
fn is_deaf(py: Python<'_>) -> bool {
    // SAFETY: whoever has `py` may ask.
    let globals = unsafe { ffi::PyEval_GetGlobals() };
    // SAFETY: borrowed from the frame that called us, or null.
    let globals = unsafe { Bound::from_borrowed_ptr_or_opt(py, globals) };
    let name = globals.and_then(|globals| globals.get_item("__name__").ok());
    let name = name.and_then(|name| name.extract::<String>().ok());
    name.is_some_and(|name| name == "torch" || name.starts_with("torch."))
}

fn capsule<M: Managed>(py: Python<'_>, export: Export, flags: u64) -> Result<Bound<'_, PyAny>> {
    let exported = exported::<M>(export, flags)?;
    // SAFETY: it was just made, so the place can be computed.
    let managed = unsafe { &raw mut (*exported).managed }.cast::<M>();
    // SAFETY: the pointer is not null, and the name is static. The destructor can be called with
    // whatever the capsule has become.
    let made = unsafe { ffi::PyCapsule_New(managed.cast(), M::NAME.as_ptr(), Some(destroy::<M>)) };
    // SAFETY: a new reference, or null with an exception set.
    match unsafe { Bound::from_owned_ptr_or_err(py, made) } {
        Ok(capsule) => Ok(capsule),
        Err(error) => {
            // SAFETY: it came from a box just now, and no capsule has it.
            drop(unsafe { Box::from_raw(exported) });
            Err(error.into())
        }
    }
}

/// The structure for an export, from a box, with its pointers pointing to what is beside it.
fn exported<M: Managed>(export: Export, flags: u64) -> Result<*mut Exported<M>> {
    let (dtype, ndim) = (export.tensor().dtype(), export.tensor().ndim());
    let (data, dtype, ndim) = (export.address(), data_type(dtype)?, i32::try_from(ndim));
    let (shape, strides) = in_elements(export.tensor())?;
    let (managed, _export) = (MaybeUninit::uninit(), export);
    let exported = Box::into_raw(Box::new(Exported::<M> { managed, _export, shape, strides }));
    let (device_type, device_id) = CPU;
    let described = DLTensor {
        data: data.cast(),
        device_type,
        device_id,
        ndim: ndim.unwrap_or_default(),
        dtype,
        // SAFETY: it is allocated, so places in it can be computed. Nothing but these pointers, and whoever
        // frees it, uses it from here on: there is no reference to it.
        shape: unsafe { &raw mut (*exported).shape }.cast(),
        // SAFETY: likewise.
        strides: unsafe { &raw mut (*exported).strides }.cast(),
        byte_offset: 0,
    };
    // SAFETY: likewise.
    let managed = unsafe { &raw mut (*exported).managed }.cast::<M>();
    // SAFETY: the place is there to be written, and what it held has nothing to drop.
    unsafe { managed.write(M::new(exported.cast(), flags, described)) };
    Ok(exported)
}

/// Shape and strides as DLPack counts them.
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

/// Frees what [`exported`] made. Needs no interpreter.
///
/// # Safety
/// `managed` is null, or what a capsule of ours had, and nobody uses it any more.
unsafe extern "C" fn delete<M: Managed>(managed: *mut M) {
    // SAFETY: `exported` has written it before anybody had it.
    let Some(context) = (unsafe { managed.as_ref() }).map(M::context) else { return };
    // SAFETY: the context is the pointer of the box that `managed` is in, which nobody has freed: consumers
    // call this once, and `destroy` only if there was none.
    drop(unsafe { Box::from_raw(context.cast::<Exported<M>>()) });
}

/// A capsule that was not consumed still has its first name, and what it was made with.
unsafe extern "C" fn destroy<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with a capsule; names are compared, whatever it has.
    if unsafe { ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) } == 0 {
        return;
    }
    // SAFETY: it is valid under this name, as was just seen.
    let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()) };
    // SAFETY: nobody consumed it, so it is ours to free.
    unsafe { delete(managed.cast::<M>()) };
}

fn data_type(dtype: DType) -> Result<DataType> {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::Bf16 => 4,
        DType::Complex64 | DType::Complex128 => 5,
        DType::Bool => 6,
        other => return Err(raise("DTypeError", format!("DLPack knows no {other}"), None)),
    };
    let bits = u8::try_from(8 * dtype.size()).unwrap_or_default();
    Ok(DataType { code, bits, lanes: 1 })
}

/// The tensor of somebody else's memory, to be read only, or a copy of it that can be written.
pub(crate) fn import(producer: &Bound<'_, PyAny>, copy: Option<bool>) -> Result<Tensor> {
    let py = producer.py();
    let (device, _): (i32, i32) = py_call::method(producer, "__dlpack_device__", ())?.extract()?;
    if device != CPU.0 && device != CUDA_HOST {
        let message = format!("the memory is that of another device ({device}), not of the CPU");
        return Err(PyBufferError::new_err(message).into());
    }
    let options = PyDict::new(py);
    options.set_item("max_version", (VERSION.major, VERSION.minor))?;
    if copy == Some(false) {
        options.set_item("copy", copy)?;
    }
    let given =
        match py_call::call(&py_call::attribute(producer, "__dlpack__")?, (), Some(&options)) {
            // A producer from before 2023 takes no such arguments, and does not copy.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                consume(py_call::method(producer, "__dlpack__", ())?)?
            }
            capsule => consume(capsule?)?,
        };
    // Ours, not the producer's: so it is known who can write it.
    match copy {
        Some(true) => Ok(py.detach(|| given.to_pooled())?),
        _ => Ok(given),
    }
}

fn consume(capsule: Bound<'_, PyAny>) -> Result<Tensor> {
    let capsule = capsule.cast_into::<PyCapsule>().map_err(PyErr::from)?;
    if capsule.is_valid_checked(Some(VERSIONED)) {
        adopt::<Versioned>(&capsule)
    } else {
        adopt::<Legacy>(&capsule)
    }
}

/// Takes over what is in a capsule.
fn adopt<M: Managed + 'static>(capsule: &Bound<'_, PyCapsule>) -> Result<Tensor> {
    let pointer = capsule.pointer_checked(Some(M::NAME))?.cast::<M>();
    // SAFETY: a capsule of this name has a managed tensor, by DLPack's convention.
    let managed = unsafe { pointer.as_ref() };
    if !managed.is_known() {
        return Err(PyBufferError::new_err("the tensor is of another version of DLPack").into());
    }
    let (tensor, release) = (*managed.tensor(), Release { pointer, deleter: managed.deleter() });
    let (start, layout, dtype) = layout_of(&tensor)?;
    // From here on it is ours to free. SAFETY: the name is static.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), M::USED.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()).into());
    }
    let len = layout.byte_range().end;
    let released = move || release.call();
    // SAFETY: the producer promises the elements until its deleter is called; they lie in the `len`
    // bytes from `start` on.
    Ok(unsafe { Tensor::from_changeable_parts(start, len, layout, dtype, released) }?)
}

/// Gives a managed tensor back.
struct Release<M> {
    pointer: NonNull<M>,
    deleter: Option<unsafe extern "C" fn(*mut M)>,
}

// SAFETY: a deleter may be called by any thread, and sees to what it needs, such as the interpreter.
unsafe impl<M> Send for Release<M> {}

impl<M> Release<M> {
    fn call(self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: the tensor was taken over, and is given back once: `self` is gone.
            unsafe { deleter(self.pointer.as_ptr()) };
        }
    }
}

/// Where the elements lie: the lowest address among them, and a layout from there.
fn layout_of(tensor: &DLTensor) -> Result<(NonNull<u8>, Layout, DType)> {
    let bad = |message: &'static str| PyValueError::new_err(message);
    // Whatever the producer said before.
    if tensor.device_type != CPU.0 && tensor.device_type != CUDA_HOST {
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

/// One number for each dimension; `None` if there are none.
fn numbers(start: *const i64, ndim: i32) -> Result<Option<Vec<i64>>> {
    let ndim = usize::try_from(ndim).ok().filter(|&ndim| ndim <= MAX_DIMS);
    let ndim = ndim.ok_or_else(|| bad_argument(format!("more than {MAX_DIMS} dimensions")))?;
    if start.is_null() {
        return Ok(None);
    }
    // SAFETY: DLPack has as many numbers there as the tensor has dimensions.
    Ok(Some(unsafe { slice::from_raw_parts(start, ndim) }.to_vec()))
}

/// A layout whose lowest byte is the first, and how far above that its first element lies.
pub(crate) fn anchored(
    shape: &[usize],
    strides: &[isize],
    item_size: usize,
) -> Result<(usize, Layout)> {
    let mut below = 0_usize;
    for (&len, &stride) in shape.iter().zip(strides).filter(|&(_, &stride)| stride < 0) {
        let reach = stride.unsigned_abs().saturating_mul(len.saturating_sub(1));
        below = below.saturating_add(reach);
    }
    Ok((below, Layout::strided(shape, strides, below, item_size)?))
}

fn dtype_of(given: DataType) -> Result<DType> {
    let same = |dtype: &DType| {
        data_type(*dtype).is_ok_and(|known| (known.code, known.bits) == (given.code, given.bits))
    };
    let found = DType::all().find(same).filter(|_| given.lanes == 1);
    found.ok_or_else(|| raise("DTypeError", format!("unknown to cenote: {given:?}"), None))
}
