//! Dtypes in Python: numpy's dtypes, their names, and bfloat16 of the package `ml_dtypes`.

use std::ffi::c_int;

use cenote::DType;
use numpy::npyffi::NPY_TYPES;
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyImportError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use crate::runtime::error::{Raised, Result, raise};
use crate::runtime::py_call;

/// A dtype argument: a name, or anything that `numpy.dtype()` accepts.
pub(crate) struct DTypeArg(pub(crate) DType);

impl<'py> FromPyObject<'_, 'py> for DTypeArg {
    type Error = Raised;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> Result<Self> {
        let name = given.cast::<PyString>().ok();
        let name = name.as_ref().map(|name| name.to_str()).transpose()?;
        let named: Option<DType> = name.and_then(|name| name.parse().ok());
        if let Some(dtype) = named.filter(|dtype| name == Some(dtype.numpy_name())) {
            return Ok(DTypeArg(dtype));
        }
        // None means the default.
        if given.is_none() {
            return Ok(DTypeArg(DType::F32));
        }
        if let Some(dtype) = of_scalar(&given) {
            return Ok(DTypeArg(dtype));
        }
        // `u8` has 8 bytes in numpy and 8 bits in the core: a name that numpy accepts means what numpy means.
        match descr_of(&given) {
            Ok(descr) => from_descr(&descr).map(DTypeArg),
            Err(raised) => unknown(given.py(), raised, named).map(DTypeArg),
        }
    }
}

/// The dtype of one of numpy's scalar types, such as `numpy.float32`, without a call of Python code.
fn of_scalar(given: &Bound<'_, PyAny>) -> Option<DType> {
    static TYPES: PyOnceLock<Vec<(Py<PyType>, DType)>> = PyOnceLock::new();
    let py = given.py();
    let scalar = |dtype| Some((descr(py, dtype).ok()?.typeobj().unbind(), dtype));
    // bfloat16 is in another package, which may not be installed.
    let in_numpy = |dtype: &DType| *dtype != DType::Bf16;
    let all = || (0..=u8::MAX).map_while(DType::from_code).filter(in_numpy);
    let types = TYPES.get_or_init(py, || all().filter_map(scalar).collect());
    types.iter().find(|(scalar, _)| given.is(scalar)).map(|&(_, dtype)| dtype)
}

/// `numpy.dtype(given)`. It accepts bfloat16 only after `ml_dtypes` was imported.
pub(crate) fn descr_of<'py>(given: &Bound<'py, PyAny>) -> Result<Bound<'py, PyArrayDescr>> {
    if let Ok(descr) = given.cast::<PyArrayDescr>() {
        return Ok(descr.clone());
    }
    let made = py_call::call(PyArrayDescr::type_object(given.py()).as_any(), (given,), None)?;
    Ok(made.cast_into().map_err(PyErr::from)?)
}

/// The dtype that cenote calls by this name, where numpy raised a `TypeError`. Else a `DTypeError`, or what
/// numpy raised.
fn unknown(py: Python<'_>, raised: Raised, named: Option<DType>) -> Result<DType> {
    let error = PyErr::from(raised);
    // Some other exception, such as Ctrl-C.
    if !error.is_instance_of::<PyTypeError>(py) {
        return Err(error.into());
    }
    named.ok_or_else(|| raise("DTypeError", error.value(py).to_string(), None))
}

/// The core's dtype for one of numpy. Fails for one that the core does not have, and for a foreign byte order.
pub(crate) fn from_descr(descr: &Bound<'_, PyArrayDescr>) -> Result<DType> {
    if let Some(dtype) = builtin(descr) {
        return Ok(dtype);
    }
    let name = py_call::attribute(descr, "name")?;
    let name = name.cast::<PyString>().map_err(PyErr::from)?.to_str()?;
    if descr.is_native_byteorder() == Some(false) {
        let message = format!(
            "the {name} elements have another byte order than this machine; use `astype` first"
        );
        return Err(raise("DTypeError", message, None));
    }
    Ok(name.parse()?)
}

/// The core's dtype for one that is built into numpy, in the byte order of this machine. Runs no Python code.
fn builtin(descr: &Bound<'_, PyArrayDescr>) -> Option<DType> {
    if descr.num() >= NPY_TYPES::NPY_USERDEF as c_int || descr.is_native_byteorder() == Some(false)
    {
        return None;
    }
    Some(match (descr.kind(), descr.itemsize()) {
        (b'f', 2) => DType::F16,
        (b'f', 4) => DType::F32,
        (b'f', 8) => DType::F64,
        (b'i', 1) => DType::I8,
        (b'i', 2) => DType::I16,
        (b'i', 4) => DType::I32,
        (b'i', 8) => DType::I64,
        (b'u', 1) => DType::U8,
        (b'u', 2) => DType::U16,
        (b'u', 4) => DType::U32,
        (b'u', 8) => DType::U64,
        (b'b', 1) => DType::Bool,
        (b'c', 8) => DType::Complex64,
        (b'c', 16) => DType::Complex128,
        _ => return None,
    })
}

/// numpy's dtype for one of the core. bfloat16 needs the package `ml_dtypes`.
pub(crate) fn descr(py: Python<'_>, dtype: DType) -> Result<&Bound<'_, PyArrayDescr>> {
    static KNOWN: [PyOnceLock<Py<PyArrayDescr>>; 15] = [const { PyOnceLock::new() }; 15];
    let made = || match dtype {
        DType::Bf16 => bfloat16(py),
        _ => Ok(descr_of(PyString::new(py, dtype.numpy_name()).as_any())?.unbind()),
    };
    match KNOWN.get(usize::from(dtype.code())) {
        Some(known) => known.get_or_try_init(py, made).map(|descr| descr.bind(py)),
        None => Err(raise("DTypeError", format!("numpy has no {dtype}"), None)),
    }
}

fn bfloat16(py: Python<'_>) -> Result<Py<PyArrayDescr>> {
    let missing = |error: PyErr| match error.is_instance_of::<PyImportError>(py) {
        true => {
            let message = "numpy has bfloat16 only with the package ml_dtypes: install it";
            raise("DTypeError", message.to_owned(), None)
        }
        // Some other exception, such as Ctrl-C.
        false => error.into(),
    };
    let module = py_call::import(py, "ml_dtypes").map_err(missing)?;
    Ok(descr_of(&py_call::attribute(&module, "bfloat16")?)?.unbind())
}

/// The letter for a dtype in `__array_interface__`; `None` for bfloat16, which has none.
pub(crate) fn kind(dtype: DType) -> Option<char> {
    match dtype.numpy_name().as_bytes().first()? {
        b'b' if dtype == DType::Bool => Some('b'),
        b'b' => None, // bfloat16
        &first => Some(char::from(first)),
    }
}
