//! Shapes as Python gives them: a sequence of lengths, or one length.

use std::ops::Deref;

use cenote::MAX_DIMS;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use crate::error::{Raised, Result, bad_argument};

/// The shape of an argument.
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
        } else if given.is_instance_of::<PyInt>() || given.extract::<isize>().is_ok() {
            shape.push(&given)?;
        } else {
            given.try_iter()?.try_for_each(|dim| shape.push(&dim?))?;
        }
        Ok(shape)
    }
}

impl ShapeArg {
    fn push(&mut self, dim: &Bound<'_, PyAny>) -> Result<()> {
        let place = self.dims.get_mut(self.len);
        let too_many = || bad_argument(format!("a tensor has at most {MAX_DIMS} dimensions"));
        // As numpy does: what counts as an index counts as a length.
        let index: isize = dim.extract()?;
        let length = usize::try_from(index);
        let negative = |_| bad_argument(format!("a dimension cannot be {index}"));
        *place.ok_or_else(too_many)? = length.map_err(negative)?;
        self.len += 1;
        Ok(())
    }
}
