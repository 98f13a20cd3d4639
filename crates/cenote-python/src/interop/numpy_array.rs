//! numpy arrays over memory of the core, and tensors over that of arrays.
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
use crate::interop::dlpack::anchored;
use crate::interop::export::{Access, Export, Memory};
use crate::runtime::error::{Result, bad_argument};
use crate::runtime::py_call;

/// Imports numpy, and has its C interface at hand: whatever uses that without having it panics.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    py_call::import(py, "numpy")?;
    // This runs Python code, which a signal may end, and fails then.
    numpy::get_array_module(py)?;
    // What is left runs none: the module is there.
    PyUntypedArray::type_object_raw(py);
    Ok(())
}

/// The array over the tensor's memory, without a copy. It keeps the memory alive.
pub(crate) fn array<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    wanted: Access,
) -> Result<Bound<'py, PyUntypedArray>> {
    let descr = dtype::descr(py, tensor.dtype())?;
    let export = Export::new(tensor, wanted)?;
    let place = Place::of(tensor, export.is_writable());
    // SAFETY: the layout of a tensor lies inside its buffer, which the export keeps, and has been
    // asked for whether it may be written.
    unsafe { over(descr, place, Bound::new(py, Memory(export))?.into_any()) }
}

/// The array over the memory of a tensor that [is settled](Tensor::is_settled), which the object it is in
/// keeps.
///
/// # Safety
/// `keeper` has a handle of the tensor for as long as it lives.
pub(crate) unsafe fn settled<'py>(
    tensor: &Tensor,
    keeper: Bound<'py, PyAny>,
) -> Result<Bound<'py, PyUntypedArray>> {
    let descr = dtype::descr(keeper.py(), tensor.dtype())?;
    // SAFETY: the layout of a tensor lies inside its buffer, which the keeper keeps, and which is at one
    // address. It is to be read.
    unsafe { over(descr, Place::of(tensor, false), keeper) }
}

/// Where the elements of an array are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The first element.
    pub(crate) address: *mut u8,
    pub(crate) shape: &'a [usize],
    /// In bytes, as many as there are dimensions.
    pub(crate) strides: &'a [isize],
    pub(crate) writable: bool,
}

impl<'a> Place<'a> {
    fn of(tensor: &'a Tensor, writable: bool) -> Place<'a> {
        let address = tensor.as_ptr().cast_mut();
        Place { address, shape: tensor.shape(), strides: tensor.strides(), writable }
    }
}

/// The array of the elements at a place, which keeps `base`.
///
/// # Safety
/// While `base` is alive, the elements of this dtype that shape and strides lead to from the address
/// can be read, and written if the place says so.
pub(crate) unsafe fn over<'py>(
    descr: &Bound<'py, PyArrayDescr>,
    place: Place<'_>,
    base: Bound<'py, PyAny>,
) -> Result<Bound<'py, PyUntypedArray>> {
    let py = descr.py();
    let mut dims = [0 as npy_intp; MAX_DIMS];
    let mut strides = [0 as npy_intp; MAX_DIMS];
    let sizes = dims.iter_mut().zip(place.shape);
    sizes.for_each(|(to, &from)| *to = from.cast_signed());
    strides.iter_mut().zip(place.strides).for_each(|(to, &from)| *to = from);
    let flags = if place.writable { NPY_ARRAY_WRITEABLE } else { 0 };
    let count = place.shape.len().min(MAX_DIMS);
    // SAFETY: numpy takes over a reference to the dtype. Shape and strides lead to elements, as the
    // caller promises; they are at least as long as the number of dimensions says. The memory is
    // writable if the flag says so.
    let made = unsafe {
        PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            PyUntypedArray::type_object_raw(py),
            descr.clone().into_ptr().cast(),
            c_int::try_from(count).unwrap_or_default(),
            dims.as_mut_ptr(),
            strides.as_mut_ptr(),
            place.address.cast(),
            flags,
            std::ptr::null_mut(),
        )
    };
    // SAFETY: numpy gives a new reference, or null with an exception set.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, made) }?;
    let raw = made.as_ptr().cast::<PyArrayObject>();
    // SAFETY: it is an array, new and without a base; the reference to the base is taken over,
    // also in case of failure.
    let failed = unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, raw, base.into_ptr()) };
    if failed != 0 {
        return Err(PyErr::fetch(py).into());
    }
    // SAFETY: of the type that was asked for.
    Ok(unsafe { made.cast_into_unchecked() })
}

/// What `__array__` returns: the array, or one of the dtype asked for, copied as `copy` says.
pub(crate) fn converted<'py>(
    array: Bound<'py, PyUntypedArray>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    let other = match dtype.filter(|dtype| !dtype.is_none()) {
        Some(dtype) => {
            let asked = descr_of(dtype)?;
            (!asked.eq(array.dtype())?).then_some(asked)
        }
        None => None,
    };
    match (other, copy) {
        (Some(_), Some(false)) => Err(PyValueError::new_err("another dtype takes a copy").into()),
        (Some(dtype), _) => Ok(py_call::method(&array, "astype", (dtype,))?),
        (None, Some(true)) => Ok(py_call::method(&array, "copy", ())?),
        (None, _) => Ok(array.into_any()),
    }
}

/// The tensor over an array's memory, to be read, without a copy. It keeps the array.
pub(crate) fn adopt(array: &Bound<'_, PyUntypedArray>) -> Result<Tensor> {
    let dtype = dtype::from_descr(&array.dtype())?;
    let (below, layout) = anchored(array.shape(), array.strides(), dtype.size())?;
    // SAFETY: it is an array, so there is one behind the pointer.
    let data = unsafe { (*array.as_array_ptr()).fields.data }.cast::<u8>();
    let start = NonNull::new(data.wrapping_sub(below));
    let start = start.ok_or_else(|| bad_argument("the array has no memory"))?;
    let (len, keeps) = (layout.byte_range().end, array.clone().unbind());
    // SAFETY: an array's shape and strides lead to elements in memory that it keeps, from the lowest
    // address among them on. Its reference is given back when the tensor is gone.
    Ok(unsafe { Tensor::from_changeable_parts(start, len, layout, dtype, move || drop(keeps)) }?)
}

/// The array that numpy makes of anything.
pub(crate) fn to_array<'py>(given: &Bound<'py, PyAny>) -> Result<Bound<'py, PyUntypedArray>> {
    if let Ok(array) = given.cast::<PyUntypedArray>() {
        return Ok(array.clone());
    }
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let asarray = py_call::imported(given.py(), &ASARRAY, "numpy", "asarray")?;
    let array = py_call::call(asarray, (given,), None)?;
    Ok(array.cast_into().map_err(PyErr::from)?)
}
