//! Calls of Python code, from which a thread may not come back.
//!
//! When the interpreter ends, a daemon thread that asks for it again is ended too, wherever it is: up
//! to Python 3.13 by `pthread_exit`, which unwinds its stack. If that came upon a frame of Rust it would
//! be the end of the whole process. Whatever can let other threads run (Python code, and numpy when
//! it copies) is therefore called here, with nothing in the frame but a guard that has such a thread
//! wait for the end instead. PyO3 does the same where it asks for the interpreter itself.
#![allow(unsafe_code, reason = "the C interface of Python")]

use std::ffi::c_int;
use std::{mem, ptr, thread};

use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

unsafe extern "C-unwind" {
    fn PyObject_Call(
        callable: *mut PyObject,
        args: *mut PyObject,
        kwargs: *mut PyObject,
    ) -> *mut PyObject;
    fn PyObject_SetItem(o: *mut PyObject, key: *mut PyObject, value: *mut PyObject) -> c_int;
}

/// Has a thread that is being ended wait for ever.
struct Wait;

impl Drop for Wait {
    fn drop(&mut self) {
        // A panic is ours to report.
        while !thread::panicking() {
            thread::park();
        }
    }
}

/// Calls `f`, from which this thread may not come back.
#[inline(always)]
fn guarded<T>(f: impl FnOnce() -> T) -> T {
    let wait = Wait;
    let done = f();
    mem::forget(wait);
    done
}

/// Arguments, as a tuple.
pub(crate) trait Args<'py>:
    IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error: Into<PyErr>>
{
}

impl<'py, T> Args<'py> for T where
    T: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error: Into<PyErr>>
{
}

/// `callable(*args, **options)`
pub(crate) fn call<'py>(
    callable: &Bound<'py, PyAny>,
    args: impl Args<'py>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = callable.py();
    let args = args.into_pyobject(py).map_err(Into::into)?;
    let (what, given) = (callable.as_ptr(), args.as_ptr());
    let options = options.map_or(ptr::null_mut(), |options| options.as_ptr());
    // SAFETY: a callable, a tuple, and a dict or null, all borrowed for longer than the call.
    let result = guarded(|| unsafe { PyObject_Call(what, given, options) });
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, result) }
}

/// `target.name(*args)`
pub(crate) fn method<'py>(
    target: &Bound<'py, PyAny>,
    name: &str,
    args: impl Args<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    call(&target.getattr(name)?, args, None)
}

/// `target[key] = value`
pub(crate) fn set_item(
    target: &Bound<'_, PyAny>,
    key: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (what, key, value) = (target.as_ptr(), key.as_ptr(), value.as_ptr());
    // SAFETY: three objects, borrowed for longer than the call.
    match guarded(|| unsafe { PyObject_SetItem(what, key, value) }) {
        0 => Ok(()),
        _ => Err(PyErr::fetch(target.py())),
    }
}
