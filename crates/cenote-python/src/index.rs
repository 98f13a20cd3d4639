//! Basic indexing: what is inside the brackets of `tensor[...]`, as views of the core.

use cenote::Tensor;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PySlice, PyTuple};

use crate::error::{Result, bad_argument, raise};

/// The view that an index selects. Integers, slices, `...` and `None`, as in numpy.
pub(crate) fn view(tensor: &Tensor, key: &Bound<'_, PyAny>) -> Result<Tensor> {
    let keys = match key.cast::<PyTuple>() {
        Ok(keys) => keys.clone(),
        Err(_) => PyTuple::new(key.py(), [key])?,
    };
    let mut view = View { tensor: tensor.clone(), axis: 0, skipped: skipped(tensor, &keys)? };
    for key in &keys {
        view.apply(&key)?;
    }
    Ok(view.tensor)
}

/// How many axes `...` stands for.
fn skipped(tensor: &Tensor, keys: &Bound<'_, PyTuple>) -> Result<usize> {
    let ellipses = keys.iter().filter(is_ellipsis).count();
    let named = keys.iter().filter(|key| !key.is_none() && !is_ellipsis(key)).count();
    if ellipses > 1 {
        return Err(raise("OutOfRange", "an index can have one `...`, no more".to_owned(), None));
    }
    tensor.ndim().checked_sub(named).ok_or_else(|| {
        let message = format!("{named} indices for a tensor of {} dimensions", tensor.ndim());
        raise("OutOfRange", message, None)
    })
}

fn is_ellipsis(key: &Bound<'_, PyAny>) -> bool {
    key.is_instance_of::<PyEllipsis>()
}

struct View {
    tensor: Tensor,
    /// The axis that the next index is for.
    axis: usize,
    skipped: usize,
}

impl View {
    fn apply(&mut self, key: &Bound<'_, PyAny>) -> Result<()> {
        if key.is_none() {
            self.tensor = self.tensor.unsqueeze(self.axis)?;
            self.axis += 1;
        } else if is_ellipsis(key) {
            self.axis += self.skipped;
        } else if let Ok(slice) = key.cast::<PySlice>() {
            self.slice(slice)?;
        } else {
            let index = self.position(key)?;
            self.tensor = self.tensor.index(self.axis, index)?;
        }
        Ok(())
    }

    fn len(&self) -> isize {
        self.tensor.shape()[self.axis].cast_signed()
    }

    /// An index as Python counts, from either end.
    fn position(&self, key: &Bound<'_, PyAny>) -> Result<usize> {
        let refused = "an index is integers, slices, `...` and None; for more use `numpy()[...]`";
        let basic = !key.is_instance_of::<PyBool>();
        let given = basic.then(|| key.extract::<isize>().ok()).flatten();
        let given = given.ok_or_else(|| PyTypeError::new_err(refused))?;
        let index = if given < 0 { given + self.len() } else { given };
        usize::try_from(index).ok().filter(|&index| index < self.len().unsigned_abs()).ok_or_else(
            || {
                let (axis, len) = (self.axis, self.len());
                let message =
                    format!("index {given} is out of range for axis {axis} of length {len}");
                raise("OutOfRange", message, None)
            },
        )
    }

    fn slice(&mut self, slice: &Bound<'_, PySlice>) -> Result<()> {
        let found = slice.indices(self.len())?;
        let Some(last) = found.slicelength.checked_sub(1) else {
            let (len, axis) = (self.len(), self.axis);
            return Err(bad_argument(format!(
                "{slice} selects nothing of axis {axis}, of length {len}; a tensor cannot be empty"
            )));
        };
        // Each is in range, for the slice has elements.
        let (first, step) = (found.start, found.step);
        let end = first + last.cast_signed() * step;
        let (from, to) = (first.min(end).unsigned_abs(), first.max(end).unsigned_abs() + 1);
        self.tensor = self.tensor.slice(self.axis, from..to, step.unsigned_abs())?;
        if step < 0 {
            self.tensor = self.tensor.flip(self.axis)?;
        }
        self.axis += 1;
        Ok(())
    }
}
