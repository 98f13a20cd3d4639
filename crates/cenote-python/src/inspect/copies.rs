//! `cenote.copies`: counters of copies by reason, as dicts.

use std::fmt::Debug;

use cenote::{Copies, StagedCopies};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The copies of tensor memory that this process has made so far. For each reason a tuple: how many copies,
/// and how many bytes in all.
///
/// >>> before = cenote.copies()["CopiedIn"]
/// >>> t = cenote.Tensor.from_numpy(numpy.zeros(100, "uint8"))
/// >>> after = cenote.copies()["CopiedIn"]
/// >>> after[0] - before[0], after[1] - before[1]
/// (1, 100)
#[pyfunction]
pub(crate) fn copies(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    of_process(py, &cenote::copies())
}

/// The copies that a process made, as a dict.
pub(crate) fn of_process<'py>(py: Python<'py>, copies: &[Copies]) -> PyResult<Bound<'py, PyDict>> {
    by_reason(py, copies.iter().map(|each| (each.reason, each.count, each.bytes)))
}

/// The copies that a publisher made to send messages, as a dict.
pub(crate) fn of_topic<'py>(
    py: Python<'py>,
    copies: &[StagedCopies],
) -> PyResult<Bound<'py, PyDict>> {
    by_reason(py, copies.iter().map(|each| (each.reason, each.count, each.bytes)))
}

fn by_reason<R: Debug>(
    py: Python<'_>,
    copies: impl Iterator<Item = (R, u64, u64)>,
) -> PyResult<Bound<'_, PyDict>> {
    let counts = PyDict::new(py);
    for (reason, count, bytes) in copies {
        counts.set_item(format!("{reason:?}"), (count, bytes))?;
    }
    Ok(counts)
}
