//! Shapes as arguments: a sequence of lengths, or one length.

use std::ops::Deref;

use cenote::MAX_DIMS;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use crate::args::integer::{axis, is_integer, unsigned};
use crate::runtime::error::{Raised, Result, bad_argument};
use crate::runtime::py_call;

/// A shape argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShapeArg {
    dims: [usize; MAX_DIMS],
    len: usize,
}

impl Deref for ShapeArg {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.dims[..self.len]
    }
}

impl<'py> FromPyObject<'_, 'py> for ShapeArg {
    type Error = Raised;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> Result<Self> {
        let mut shape = ShapeArg { dims: [0; MAX_DIMS], len: 0 };
        if let Ok(dims) = given.cast::<PyTuple>() {
            dims.iter_borrowed().try_for_each(|dim| shape.push(&dim))?;
        } else if given.is_instance_of::<PyInt>() || is_integer(&given) {
            shape.push(&given)?;
        } else {
            py_call::for_each(&given, |dim| shape.push(&dim))?;
        }
        Ok(shape)
    }
}

impl ShapeArg {
    fn push(&mut self, dim: &Bound<'_, PyAny>) -> Result<()> {
        let dim_slot = self.dims.get_mut(self.len);
        let too_many = || bad_argument(format!("a tensor has at most {MAX_DIMS} dimensions"));
        *dim_slot.ok_or_else(too_many)? =
            unsigned("a length", dim, isize::MAX.unsigned_abs() as u64)?;
        self.len += 1;
        Ok(())
    }
}

/// The shape of `len` elements in which one length may be -1 and follows from the others. Fails if the others
/// do not divide `len`.
pub(crate) fn completed(given: &[Bound<'_, PyAny>], len: usize) -> Result<Vec<usize>> {
    let is_inferred = |dim: &&Bound<'_, PyAny>| {
        py_call::index(dim).is_ok_and(|dim| dim.eq(-1).is_ok_and(|is| is))
    };
    let mut shape = Vec::with_capacity(given.len());
    let mut inferred =
        given.iter().enumerate().filter(|(_, dim)| is_inferred(dim)).map(|(at, _)| at);
    let (first, second) = (inferred.next(), inferred.next());
    if second.is_some() {
        return Err(bad_argument("only one dimension can be -1"));
    }
    for (at, dim) in given.iter().enumerate() {
        let is_inferred = first == Some(at);
        shape.push(if is_inferred {
            1
        } else {
            unsigned("a length", dim, isize::MAX.unsigned_abs() as u64)?
        });
    }
    if let Some(at) = first {
        let others = shape.iter().try_fold(1_usize, |all, &dim| all.checked_mul(dim));
        let left = others.filter(|&others| others != 0 && len.is_multiple_of(others));
        let uneven =
            || bad_argument(format!("{len} elements cannot be divided by the other lengths"));
        shape[at] = len / left.ok_or_else(uneven)?;
    }
    Ok(shape)
}

/// Axes of `ndim`; negative ones count from the end, as in numpy.
pub(crate) fn axes(given: &[Bound<'_, PyAny>], ndim: usize) -> Result<Vec<usize>> {
    given.iter().map(|given| axis(given, ndim)).collect()
}

/// A shape as Python prints a tuple.
pub(crate) fn tuple(shape: &[usize]) -> String {
    let parts: Vec<_> = shape.iter().map(usize::to_string).collect();
    format!("({}{})", parts.join(", "), if parts.len() == 1 { "," } else { "" })
}
