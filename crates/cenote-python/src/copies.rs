//! `cenote.copies`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// All copies of tensor bytes in this process so far: for each reason how many, and how many bytes.
///
/// >>> before = cenote.copies()["CopiedIn"]
/// >>> t = cenote.Tensor.from_numpy(numpy.zeros(100, "uint8"))
/// >>> after = cenote.copies()["CopiedIn"]
/// >>> after[0] - before[0], after[1] - before[1]
/// (1, 100)
#[pyfunction]
pub(crate) fn copies(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let counts = PyDict::new(py);
    for copies in cenote::copies() {
        counts.set_item(format!("{:?}", copies.reason), (copies.count, copies.bytes))?;
    }
    Ok(counts)
}
