//! Numbers as Python gives them: whatever counts as an index, so numpy's too. What is out of range is an
//! error of cenote.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::call;
use crate::error::{Raised, Result, bad_argument, raise};

/// One function for each argument, which the error names.
macro_rules! arguments {
    ($kind:ty: $($name:ident)+) => {
        use super::*;
        $(pub(crate) fn $name(given: &Bound<'_, PyAny>) -> PyResult<$kind> {
            Ok(unsigned(stringify!($name), given, <$kind>::MAX as u64)?)
        })+
    };
}

/// Sizes and counts.
pub(crate) mod size {
    arguments!(usize: count depth growth_mb height history len max_buffer_size max_leases max_pool_size
        max_retained_bytes max_slots points size_mb slot_alignment values width);
}

/// Numbers of messages, and of nanoseconds.
pub(crate) mod count {
    arguments!(u64: seq stamp_ns);
}

/// Numbers of users' groups.
mod id {
    arguments!(u32: group);
}

/// What an argument is, unless it is None.
fn optional<T>(
    given: &Bound<'_, PyAny>,
    some: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    if given.is_none() { Ok(None) } else { some(given).map(Some) }
}

pub(crate) fn optional_max_retained_bytes(given: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    optional(given, size::max_retained_bytes)
}

pub(crate) fn optional_group(given: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    optional(given, id::group)
}

/// A number of seconds.
pub(crate) fn seconds(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    call::float(given)
}

/// A number of seconds, unless it is None.
pub(crate) fn optional_seconds(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    optional(given, seconds)
}

/// The column or row of a pixel. There is none before 0.
pub(crate) fn coordinate(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    place("no pixel is at", given)
}

/// The number of a plane. There is none before 0.
pub(crate) fn plane(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    place("there is no plane", given)
}

fn place(none: &str, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    let whole = call::index(given)?;
    let outside = || raise("OutOfRange", format!("{none} {}", shown(&whole)), None);
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

/// A number from 0 to `most`; errors say what it is.
pub(crate) fn unsigned<T: TryFrom<u64>>(
    what: &str,
    given: &Bound<'_, PyAny>,
    most: u64,
) -> Result<T> {
    let whole = call::index(given)?;
    let found = whole.extract::<u64>().ok().filter(|&number| number <= most);
    let found = found.and_then(|number| T::try_from(number).ok());
    found.ok_or_else(|| out_of_range(what, &whole, most))
}

fn out_of_range(what: &str, whole: &Bound<'_, PyAny>, most: u64) -> Raised {
    match whole.lt(0) {
        Ok(true) => bad_argument(format!("{what} is a number from 0 on, not {}", shown(whole))),
        _ => bad_argument(format!("{what} is {most} at most, not {}", shown(whole))),
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
