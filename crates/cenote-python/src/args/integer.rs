//! Integer arguments: an `int`, or an object with `__index__`, such as numpy's integers. Errors name the
//! argument and its limits.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::runtime::error::{Raised, Result, bad_argument, raise};
use crate::runtime::py_call;

/// One conversion for each argument, whose name the error states.
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

/// Fields of a header.
pub(crate) mod count {
    arguments!(u64: seq stamp_ns);
}

/// Group ids.
mod id {
    arguments!(u32: group);
}

/// Converts an argument with `convert`, unless it is None.
pub(super) fn optional<T>(
    given: &Bound<'_, PyAny>,
    convert: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    if given.is_none() { Ok(None) } else { convert(given).map(Some) }
}

pub(crate) fn optional_max_retained_bytes(given: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    optional(given, size::max_retained_bytes)
}

pub(crate) fn optional_group(given: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    optional(given, id::group)
}

/// The column or row of a pixel. A negative one is out of range.
pub(crate) fn coordinate(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    position("there is no pixel at", given)
}

/// The number of a plane. A negative one is out of range.
pub(crate) fn plane(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    position("there is no plane", given)
}

fn position(missing: &str, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    let integer = py_call::index(given)?;
    let outside = || raise("OutOfRange", format!("{missing} {}", shown(&integer)), None);
    Ok(integer.extract().map_err(|_| outside())?)
}

/// An axis of `ndim`; a negative one counts from the end, as in numpy.
pub(crate) fn axis(given: &Bound<'_, PyAny>, ndim: usize) -> Result<usize> {
    let integer = py_call::index(given)?;
    let found = integer.extract::<isize>().ok().and_then(|axis| match axis {
        0.. => usize::try_from(axis).ok(),
        _ => ndim.checked_sub(axis.unsigned_abs()),
    });
    found.filter(|&axis| axis < ndim).ok_or_else(|| {
        let message = format!("there is no axis {} in {ndim} dimensions", shown(&integer));
        raise("OutOfRange", message, None)
    })
}

/// An integer from 0 to `most`. An error states `name`.
pub(crate) fn unsigned<T: TryFrom<u64>>(
    name: &str,
    given: &Bound<'_, PyAny>,
    most: u64,
) -> Result<T> {
    let integer = py_call::index(given)?;
    let found = integer.extract::<u64>().ok().filter(|&number| number <= most);
    let found = found.and_then(|number| T::try_from(number).ok());
    found.ok_or_else(|| out_of_range(name, &integer, most))
}

fn out_of_range(name: &str, integer: &Bound<'_, PyAny>, most: u64) -> Raised {
    match integer.lt(0) {
        Ok(true) => bad_argument(format!("{name} must be 0 or more, not {}", shown(integer))),
        _ => bad_argument(format!("{name} must be {most} at most, not {}", shown(integer))),
    }
}

/// The integer as Python prints it. Python refuses to print one of thousands of digits.
fn shown(integer: &Bound<'_, PyAny>) -> String {
    py_call::str(integer).unwrap_or_else(|_| "a number that long".to_owned())
}

/// Whether it is an integer, or has `__index__`. A string is neither.
pub(crate) fn is_integer(given: &Bound<'_, PyAny>) -> bool {
    !given.is_instance_of::<PyString>() && py_call::index(given).is_ok()
}
