//! Dtypes as Python knows them: numpy's, their names, and bfloat16 of `ml_dtypes`.

use cenote::DType;
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

use crate::error::{Raised, Result, raise};

/// The dtype of an argument: a name, or whatever numpy makes a dtype of.
pub(crate) struct DTypeArg(pub(crate) DType);

impl<'py> FromPyObject<'_, 'py> for DTypeArg {
    type Error = Raised;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> Result<Self> {
        if let Ok(name) = given.cast::<PyString>()
            && let Ok(dtype) = name.to_str()?.parse()
        {
            return Ok(DTypeArg(dtype));
        }
        from_descr(&descr_of(&given)?).map(DTypeArg)
    }
}

/// What numpy makes of it, which knows bfloat16 only once `ml_dtypes` has told it.
fn descr_of<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArrayDescr>> {
    PyArrayDescr::new(given.py(), given)
}

/// The dtype that numpy's stands for.
pub(crate) fn from_descr(descr: &Bound<'_, PyArrayDescr>) -> Result<DType> {
    let name = descr.getattr("name")?;
    let name = name.cast::<PyString>().map_err(PyErr::from)?.to_str()?;
    if descr.is_native_byteorder() == Some(false) {
        let message = format!("{name} in the byte order of other machines; use `astype` first");
        return Err(raise("DTypeError", message, None));
    }
    Ok(name.parse()?)
}

/// numpy's dtype. bfloat16 needs the package `ml_dtypes`.
pub(crate) fn descr(py: Python<'_>, dtype: DType) -> Result<&Bound<'_, PyArrayDescr>> {
    static KNOWN: [PyOnceLock<Py<PyArrayDescr>>; 15] = [const { PyOnceLock::new() }; 15];
    let made = || match dtype {
        DType::Bf16 => bfloat16(py),
        _ => Ok(PyArrayDescr::new(py, dtype.numpy_name())?.unbind()),
    };
    match KNOWN.get(usize::from(dtype.code())) {
        Some(known) => known.get_or_try_init(py, made).map(|descr| descr.bind(py)),
        None => Err(raise("DTypeError", format!("numpy has no {dtype}"), None)),
    }
}

fn bfloat16(py: Python<'_>) -> Result<Py<PyArrayDescr>> {
    let module = py.import("ml_dtypes").map_err(|_| {
        let message = "numpy knows bfloat16 through the package ml_dtypes: install it";
        raise("DTypeError", message.to_owned(), None)
    })?;
    Ok(descr_of(&module.getattr("bfloat16")?)?.unbind())
}
