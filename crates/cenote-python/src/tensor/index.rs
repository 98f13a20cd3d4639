//! Basic indexing: `tensor[1, 2:4, ..., None]` as a view of the core.

use cenote::Tensor;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PySlice, PyTuple};

use crate::runtime::error::{Result, bad_argument, raise};
use crate::runtime::py_call;

/// The view that an index selects: integers, slices, `...` and `None`, as in numpy.
pub(crate) fn view(tensor: &Tensor, key: &Bound<'_, PyAny>) -> Result<Tensor> {
    let mut view = View { tensor: tensor.clone(), axis: 0, skipped: 0 };
    match key.cast::<PyTuple>() {
        Ok(keys) => {
            view.skipped = skipped(tensor, keys)?;
            keys.iter_borrowed().try_for_each(|key| view.apply(&key))?;
        }
        Err(_) => view.apply(key)?,
    }
    Ok(view.tensor)
}

/// How many axes `...` stands for. Fails if the index has more than one `...`, or too many entries.
fn skipped(tensor: &Tensor, keys: &Bound<'_, PyTuple>) -> Result<usize> {
    let ellipses = keys.iter_borrowed().filter(|key| is_ellipsis(key)).count();
    let new_axes = keys.iter_borrowed().filter(|key| key.is_none()).count();
    let indexed = keys.len() - ellipses - new_axes;
    if ellipses > 1 {
        return Err(raise("OutOfRange", "an index can have one `...`, no more".to_owned(), None));
    }
    tensor.ndim().checked_sub(indexed).ok_or_else(|| {
        let message = format!("{indexed} indices for a tensor of {} dimensions", tensor.ndim());
        raise("OutOfRange", message, None)
    })
}

/// `...`, the index that selects all elements.
pub(crate) fn ellipsis(py: Python<'_>) -> Bound<'_, PyEllipsis> {
    PyEllipsis::get(py).to_owned()
}

fn is_ellipsis(key: &Bound<'_, PyAny>) -> bool {
    key.is_instance_of::<PyEllipsis>()
}

/// A view while the entries of an index are applied to it, one after the other.
struct View {
    tensor: Tensor,
    /// The axis that the next entry is for.
    axis: usize,
    /// How many axes `...` stands for.
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

    /// The length of the current axis.
    fn len(&self) -> Result<isize> {
        let len = self.tensor.shape().get(self.axis);
        let none = || raise("OutOfRange", "a tensor of no dimensions has no index".into(), None);
        len.map(|len| len.cast_signed()).ok_or_else(none)
    }

    /// A position on the current axis. A negative one counts from the end.
    fn position(&self, key: &Bound<'_, PyAny>) -> Result<usize> {
        let refused = "an index is integers, slices, `...` and None; for more use `numpy()[...]`";
        let is_basic = !key.is_instance_of::<PyBool>();
        let integer = is_basic.then(|| py_call::index(key).ok()).flatten();
        let integer = integer.ok_or_else(|| PyTypeError::new_err(refused))?;
        let (axis, len) = (self.axis, self.len()?);
        // An integer that does not fit is out of range, too.
        let given = integer.extract::<isize>().unwrap_or(isize::MAX);
        let index = if given < 0 { given + len } else { given };
        let found = usize::try_from(index).ok().filter(|_| index < len);
        found.ok_or_else(|| {
            let message =
                format!("index {integer} is out of range for axis {axis} of length {len}");
            raise("OutOfRange", message, None)
        })
    }

    fn slice(&mut self, slice: &Bound<'_, PySlice>) -> Result<()> {
        let (axis, len) = (self.axis, self.len()?);
        let (first, step, count) = py_call::slice(slice, len)?;
        let Some(last) = count.checked_sub(1) else {
            let slice = py_call::repr(slice.as_any())?;
            return Err(bad_argument(format!(
                "{slice} selects nothing of axis {axis}, of length {len}; a tensor cannot be empty"
            )));
        };
        // First and last are in range, because the slice selects at least one element.
        let end = first + last.cast_signed() * step;
        let (from, to) = (first.min(end).unsigned_abs(), first.max(end).unsigned_abs() + 1);
        self.tensor = self.tensor.slice(axis, from..to, step.unsigned_abs())?;
        if step < 0 {
            self.tensor = self.tensor.flip(axis)?;
        }
        self.axis += 1;
        Ok(())
    }
}
