//! Numbers as Python gives them: whatever counts as an index, so numpy's too. What is out of range is an
//! error of cenote.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::call;
use crate::error::{Raised, Result, bad_argument, raise};

/// A size or a count.
pub(crate) fn size(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(unsigned(given, u64::try_from(usize::MAX).unwrap_or(u64::MAX))?)
}

/// A size or a count, unless it is None.
pub(crate) fn optional_size(given: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if given.is_none() { Ok(None) } else { size(given).map(Some) }
}

/// A number of seconds.
pub(crate) fn seconds(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    call::float(given)
}

/// A number of seconds, unless it is None.
pub(crate) fn optional_seconds(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if given.is_none() { Ok(None) } else { seconds(given).map(Some) }
}

/// The number of a message, or of nanoseconds.
pub(crate) fn number(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(unsigned(given, u64::MAX)?)
}

/// The number of a group of users, unless it is None.
pub(crate) fn optional_id(given: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    if given.is_none() { Ok(None) } else { Ok(unsigned(given, u32::MAX.into()).map(Some)?) }
}

/// The column or row of a pixel. There is none before 0.
pub(crate) fn coordinate(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    let whole = call::index(given)?;
    let outside = || raise("OutOfRange", format!("no pixel is at {}", shown(&whole)), None);
    Ok(whole.extract().map_err(|_| outside())?)
}

/// An axis as Python counts, from either end, of `ndim`.
pub(crate) fn axis(given: &Bound<'_, PyAny>, ndim: usize) -> Result<usize> {
    let whole = call::index(given)?;
    let found = whole.extract::<isize>().ok().and_then(|axis| match axis {
        0.. => usize::try_from(axis).ok(),
        _ => ndim.checked_sub(axis.unsigned_abs()),
    });
    found.filter(|&axis| axis < ndim).ok_or_else(|| {
        let message = format!("no axis {} in {ndim} dimensions", shown(&whole));
        raise("OutOfRange", message, None)
    })
}

/// A number from 0 to `most`.
pub(crate) fn unsigned<T: TryFrom<u64>>(given: &Bound<'_, PyAny>, most: u64) -> Result<T> {
    let whole = call::index(given)?;
    let found = whole.extract::<u64>().ok().filter(|&number| number <= most);
    found.and_then(|number| T::try_from(number).ok()).ok_or_else(|| out_of_range(&whole, most))
}

fn out_of_range(whole: &Bound<'_, PyAny>, most: u64) -> Raised {
    match whole.lt(0) {
        Ok(true) => bad_argument(format!("a number from 0 on is needed, not {}", shown(whole))),
        _ => bad_argument(format!("{} is more than {most}, the most there can be", shown(whole))),
    }
}

/// As Python prints it; what has thousands of digits it does not print.
fn shown(whole: &Bound<'_, PyAny>) -> String {
    call::str(whole).unwrap_or_else(|_| "a number that long".to_owned())
}

/// Whether it is a number that counts as an index, and not text.
pub(crate) fn is_whole(given: &Bound<'_, PyAny>) -> bool {
    !given.is_instance_of::<PyString>() && call::index(given).is_ok()
}
