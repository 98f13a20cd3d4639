//! Dtypes as Python knows them: numpy's, their names, and bfloat16 of `ml_dtypes`.

use std::ffi::c_int;

use cenote::DType;
use numpy::npyffi::NPY_TYPES;
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyImportError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use crate::call;
use crate::error::{Raised, Result, raise};

/// The dtype of an argument: a name, or whatever numpy makes a dtype of.
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
        // As if it were not given.
        if given.is_none() {
            return Ok(DTypeArg(DType::F32));
        }
        if let Some(dtype) = of_scalar(&given) {
            return Ok(DTypeArg(dtype));
        }
        // `u8` has 8 bytes there and 8 bits here: what numpy knows is meant as numpy means it.
        match descr_of(&given) {
            Ok(descr) => from_descr(&descr).map(DTypeArg),
            Err(raised) => unknown(given.py(), raised, named).map(DTypeArg),
        }
    }
}

/// The dtype of a scalar type of numpy itself, such as `numpy.float32`, told without a call.
fn of_scalar(given: &Bound<'_, PyAny>) -> Option<DType> {
    static TYPES: PyOnceLock<Vec<(Py<PyType>, DType)>> = PyOnceLock::new();
    let py = given.py();
    let scalar = |dtype| Some((descr(py, dtype).ok()?.typeobj().unbind(), dtype));
    // bfloat16 is of another package, which need not be there.
    let own = |dtype: &DType| *dtype != DType::Bf16;
    let all = || (0..=u8::MAX).map_while(DType::from_code).filter(own);
    let types = TYPES.get_or_init(py, || all().filter_map(scalar).collect());
    types.iter().find(|(scalar, _)| given.is(scalar)).map(|&(_, dtype)| dtype)
}

/// What numpy makes of it, which knows bfloat16 only once `ml_dtypes` has told it.
pub(crate) fn descr_of<'py>(given: &Bound<'py, PyAny>) -> Result<Bound<'py, PyArrayDescr>> {
    if let Ok(descr) = given.cast::<PyArrayDescr>() {
        return Ok(descr.clone());
    }
    let made = call::call(PyArrayDescr::type_object(given.py()).as_any(), (given,), None)?;
    Ok(made.cast_into().map_err(PyErr::from)?)
}

/// What numpy does not make a dtype of may be a name of ours, and else is an error of cenote, too.
fn unknown(py: Python<'_>, raised: Raised, named: Option<DType>) -> Result<DType> {
    let error = PyErr::from(raised);
    // Ctrl-C, say.
    if !error.is_instance_of::<PyTypeError>(py) {
        return Err(error.into());
    }
    named.ok_or_else(|| raise("DTypeError", error.value(py).to_string(), None))
}

/// The dtype that numpy's stands for.
pub(crate) fn from_descr(descr: &Bound<'_, PyArrayDescr>) -> Result<DType> {
    if let Some(dtype) = own(descr) {
        return Ok(dtype);
    }
    let name = call::attribute(descr, "name")?;
    let name = name.cast::<PyString>().map_err(PyErr::from)?.to_str()?;
    if descr.is_native_byteorder() == Some(false) {
        let message = format!("{name} in the byte order of other machines; use `astype` first");
        return Err(raise("DTypeError", message, None));
    }
    Ok(name.parse()?)
}

/// One of numpy's own dtypes in the byte order of this machine, told without asking Python code for
/// its name.
fn own(descr: &Bound<'_, PyArrayDescr>) -> Option<DType> {
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

/// numpy's dtype. bfloat16 needs the package `ml_dtypes`.
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
            let message = "numpy knows bfloat16 through the package ml_dtypes: install it";
            raise("DTypeError", message.to_owned(), None)
        }
        // Ctrl-C, say.
        false => error.into(),
    };
    let module = call::import(py, "ml_dtypes").map_err(missing)?;
    Ok(descr_of(&call::attribute(&module, "bfloat16")?)?.unbind())
}

/// The letter that the old array interface knows it by, if it does.
pub(crate) fn kind(dtype: DType) -> Option<char> {
    match dtype.numpy_name().as_bytes().first()? {
        b'b' if dtype == DType::Bool => Some('b'),
        b'b' => None, // bfloat16
        &first => Some(char::from(first)),
    }
}
