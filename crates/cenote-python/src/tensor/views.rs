//! Tensors over the same memory with another shape, order or selection of the elements.
#![allow(unsafe_code, reason = "Python's C interface takes pointers")]

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::args::integer::{axis as axis_of, is_integer};
use crate::args::shape;
use crate::interop::export::Access;
use crate::interop::numpy_array::array;
use crate::runtime::error::Result;
use crate::runtime::py_call;
use crate::tensor::index;
use crate::tensor::tensor::Tensor;

#[pymethods]
impl Tensor {
    /// The same elements with the order of the axes reversed.
    #[getter]
    #[pyo3(name = "T")]
    fn transposed(&self) -> Tensor {
        Tensor(self.0.transpose())
    }

    /// The same elements in another shape, without a copy. Fails if that needs a copy. One length can be -1:
    /// it follows from the others.
    ///
    /// >>> cenote.Tensor((4, 6)).reshape(3, -1).shape
    /// (3, 8)
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> Result<Tensor> {
        Ok(Tensor(self.0.reshape(&shape::completed(&flatten(shape)?, self.0.len())?)?))
    }

    /// The same elements with the axes in the given order, or reversed if none is given.
    #[pyo3(signature = (*axes))]
    fn transpose(&self, axes: &Bound<'_, PyTuple>) -> Result<Tensor> {
        match axes.is_empty() {
            true => Ok(self.transposed()),
            false => Ok(Tensor(self.0.permute(&shape::axes(&flatten(axes)?, self.0.ndim())?)?)),
        }
    }

    /// The same elements without one axis, whose length must be 1, or without all axes of length 1.
    #[pyo3(signature = (axis=None))]
    fn squeeze(&self, axis: Option<&Bound<'_, PyAny>>) -> Result<Tensor> {
        if let Some(given) = axis {
            return Ok(Tensor(self.0.squeeze(axis_of(given, self.0.ndim())?)?));
        }
        let mut squeezed = self.0.clone();
        for axis in (0..squeezed.ndim()).rev().filter(|&axis| self.0.shape()[axis] == 1) {
            squeezed = squeezed.squeeze(axis)?;
        }
        Ok(Tensor(squeezed))
    }

    /// The same elements with the order along one axis reversed.
    fn flip(&self, axis: &Bound<'_, PyAny>) -> Result<Tensor> {
        Ok(Tensor(self.0.flip(axis_of(axis, self.0.ndim())?)?))
    }

    /// Whether an element is equal to a value.
    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<bool> {
        let all = array(py, &self.0, Access::Read)?;
        Ok(py_call::method(all.as_any(), "__contains__", (value,))?.is_truthy()?)
    }

    fn __len__(&self) -> PyResult<usize> {
        let none = || PyTypeError::new_err("a tensor of no dimensions has no len()");
        self.0.shape().first().copied().ok_or_else(none)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().__len__()?;
        // SAFETY: an object with `__getitem__`, borrowed for longer than the call.
        let made = unsafe { ffi::PySeqIter_New(slf.as_ptr()) };
        // SAFETY: the call returned a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(slf.py(), made) }
    }

    /// A view: integers, slices, `...` and None, as in numpy. For other indices use `numpy()[...]`.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> Result<Tensor> {
        Ok(Tensor(index::view(&self.0, key)?))
    }

    /// Writes elements, as numpy does: `t[...] = x`, `t[mask] = 0`.
    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> Result<()> {
        Ok(py_call::set_item(array(py, &self.0, Access::Write)?.as_any(), key, value)?)
    }
}

/// The numbers of an argument list: given one by one, or as one sequence.
fn flatten<'py>(given: &Bound<'py, PyTuple>) -> Result<Vec<Bound<'py, PyAny>>> {
    let mut numbers = Vec::new();
    let one = (given.len() == 1).then(|| given.get_item(0)).transpose()?;
    match one.filter(|one| !is_integer(one)) {
        Some(sequence) => py_call::for_each(&sequence, |number| {
            numbers.push(number);
            Ok::<_, PyErr>(())
        })?,
        None => numbers.extend(given.iter()),
    }
    Ok(numbers)
}
