//! numpy arrays over the core's memory, and tensors over the memory of numpy arrays.
#![allow(unsafe_code, reason = "numpy's C interface takes pointers")]

use std::ffi::c_int;
use std::ptr::NonNull;

use cenote::{MAX_DIMS, Tensor};
use numpy::npyffi::{NPY_ARRAY_WRITEABLE, PY_ARRAY_API, PyArrayObject, npy_intp};
use numpy::{PyArrayDescr, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::PyTypeInfo;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::args::dtype::{self, descr_of};
use crate::interop::anchored::anchored;
use crate::interop::export::{Access, Export, Memory};
use crate::runtime::error::{Result, bad_argument};
use crate::runtime::py_call;

/// Imports numpy and its C interface. Call it first: uses of the C interface panic if it cannot be imported.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    py_call::import(py, "numpy")?;
    // This runs Python code, so it can fail, for example because of Ctrl-C.
    numpy::get_array_module(py)?;
    // This runs none any more: the module is loaded.
    PyUntypedArray::type_object_raw(py);
    Ok(())
}

/// An array over the tensor's memory, without a copy. It keeps the memory alive.
pub(crate) fn array<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    wanted: Access,
) -> Result<Bound<'py, PyUntypedArray>> {
    let descr = dtype::descr(py, tensor.dtype())?;
    let export = Export::new(tensor, wanted)?;
    let elements = Elements::of(tensor, export.is_writable());
    // SAFETY: a tensor's elements are in its buffer, which the export keeps. The array is writable only if
    // the export is.
    unsafe { over(descr, elements, Bound::new(py, Memory(export))?.into_any()) }
}

/// A read-only array over the memory of an immutable tensor ([`Tensor::is_immutable`]). It keeps `keeper`, the
/// object that holds the tensor.
///
/// # Safety
/// `keeper` holds the tensor for as long as it lives.
pub(crate) unsafe fn immutable<'py>(
    tensor: &Tensor,
    keeper: Bound<'py, PyAny>,
) -> Result<Bound<'py, PyUntypedArray>> {
    let descr = dtype::descr(keeper.py(), tensor.dtype())?;
    // SAFETY: a tensor's elements are in its buffer. The keeper holds the tensor, as the caller promises, and
    // the buffer of an immutable tensor stays at one address. The array is read-only.
    unsafe { over(descr, Elements::of(tensor, false), keeper) }
}

/// Address and layout of an array's elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements<'a> {
    /// The first element.
    pub(crate) address: *mut u8,
    pub(crate) shape: &'a [usize],
    /// In bytes, one for each dimension.
    pub(crate) strides: &'a [isize],
    pub(crate) writable: bool,
}

impl<'a> Elements<'a> {
    fn of(tensor: &'a Tensor, writable: bool) -> Elements<'a> {
        let address = tensor.as_ptr().cast_mut();
        Elements { address, shape: tensor.shape(), strides: tensor.strides(), writable }
    }
}

/// An array of these elements, which keeps `base`.
///
/// # Safety
/// While `base` is alive, all elements of this dtype that shape and strides reach from the address can be
/// read, and written if `writable` is set.
pub(crate) unsafe fn over<'py>(
    descr: &Bound<'py, PyArrayDescr>,
    elements: Elements<'_>,
    base: Bound<'py, PyAny>,
) -> Result<Bound<'py, PyUntypedArray>> {
    let py = descr.py();
    let mut dims = [0 as npy_intp; MAX_DIMS];
    let mut strides = [0 as npy_intp; MAX_DIMS];
    let sizes = dims.iter_mut().zip(elements.shape);
    sizes.for_each(|(to, &from)| *to = from.cast_signed());
    strides.iter_mut().zip(elements.strides).for_each(|(to, &from)| *to = from);
    let flags = if elements.writable { NPY_ARRAY_WRITEABLE } else { 0 };
    let count = elements.shape.len().min(MAX_DIMS);
    // SAFETY: numpy takes the reference to the dtype. `dims` and `strides` have at least `count` numbers, and
    // reach valid elements, as the caller promises. The memory is writable if the flag says so.
    let made = unsafe {
        PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            PyUntypedArray::type_object_raw(py),
            descr.clone().into_ptr().cast(),
            c_int::try_from(count).unwrap_or_default(),
            dims.as_mut_ptr(),
            strides.as_mut_ptr(),
            elements.address.cast(),
            flags,
            std::ptr::null_mut(),
        )
    };
    // SAFETY: numpy returns a new reference, or null with an exception set.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, made) }?;
    let raw = made.as_ptr().cast::<PyArrayObject>();
    // SAFETY: `raw` is a new array without a base. numpy takes the reference to the base, also if it fails.
    let failed = unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, raw, base.into_ptr()) };
    if failed != 0 {
        return Err(PyErr::fetch(py).into());
    }
    // SAFETY: the object has the type that was passed to numpy.
    Ok(unsafe { made.cast_into_unchecked() })
}

/// The result of `__array__`: the array itself, or converted to another dtype. Copies as `copy` says.
pub(crate) fn converted<'py>(
    array: Bound<'py, PyUntypedArray>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    let other = match dtype.filter(|dtype| !dtype.is_none()) {
        Some(dtype) => {
            let wanted = descr_of(dtype)?;
            (!wanted.eq(array.dtype())?).then_some(wanted)
        }
        None => None,
    };
    match (other, copy) {
        (Some(_), Some(false)) => Err(PyValueError::new_err("another dtype needs a copy").into()),
        (Some(dtype), _) => Ok(py_call::method(&array, "astype", (dtype,))?),
        (None, Some(true)) => Ok(py_call::method(&array, "copy", ())?),
        (None, _) => Ok(array.into_any()),
    }
}

/// A read-only tensor over an array's memory, without a copy. It keeps the array.
pub(crate) fn adopt(array: &Bound<'_, PyUntypedArray>) -> Result<Tensor> {
    let dtype = dtype::from_descr(&array.dtype())?;
    let (below, layout) = anchored(array.shape(), array.strides(), dtype.size())?;
    // SAFETY: the pointer is that of a live array object.
    let data = unsafe { (*array.as_array_ptr()).fields.data }.cast::<u8>();
    let start = NonNull::new(data.wrapping_sub(below));
    let start = start.ok_or_else(|| bad_argument("the array has no memory"))?;
    let (len, keeps) = (layout.byte_range().end, array.clone().unbind());
    // SAFETY: an array's shape and strides reach only memory that the array keeps, from its lowest address
    // on. The tensor holds a reference to the array until it is dropped.
    Ok(unsafe { Tensor::from_changeable_parts(start, len, layout, dtype, move || drop(keeps)) }?)
}

/// `numpy.asarray(given)`
pub(crate) fn to_array<'py>(given: &Bound<'py, PyAny>) -> Result<Bound<'py, PyUntypedArray>> {
    if let Ok(array) = given.cast::<PyUntypedArray>() {
        return Ok(array.clone());
    }
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let asarray = py_call::imported(given.py(), &ASARRAY, "numpy", "asarray")?;
    let array = py_call::call(asarray, (given,), None)?;
    Ok(array.cast_into().map_err(PyErr::from)?)
}
