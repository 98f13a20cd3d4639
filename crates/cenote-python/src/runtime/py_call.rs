//! Calls into Python code, during which the interpreter may end the calling thread.
//!
//! When the interpreter exits, it ends every daemon thread that tries to take the GIL again: up to Python
//! 3.13 with `pthread_exit`, which unwinds the thread's stack. If unwinding reaches a frame of Rust, the
//! whole process aborts. So everything that can release the GIL (Python code, and numpy when it copies) is
//! called from this file. The frame of such a call holds nothing but a guard, which parks an unwinding thread
//! until the process ends. PyO3 does the same where it takes the GIL itself.
#![allow(unsafe_code, reason = "Python's C interface takes pointers")]

use std::ffi::{c_double, c_int};
use std::{mem, ptr, thread};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt, PySlice, PyString, PyTuple};

unsafe extern "C-unwind" {
    fn PyObject_Call(
        callable: *mut PyObject,
        args: *mut PyObject,
        kwargs: *mut PyObject,
    ) -> *mut PyObject;
    fn PyObject_SetItem(o: *mut PyObject, key: *mut PyObject, value: *mut PyObject) -> c_int;
    fn PyObject_GetAttr(o: *mut PyObject, name: *mut PyObject) -> *mut PyObject;
    fn PyObject_GetIter(o: *mut PyObject) -> *mut PyObject;
    fn PyIter_Next(iterator: *mut PyObject) -> *mut PyObject;
    fn PyImport_Import(name: *mut PyObject) -> *mut PyObject;
    fn PyNumber_Index(o: *mut PyObject) -> *mut PyObject;
    fn PyObject_Repr(o: *mut PyObject) -> *mut PyObject;
    fn PyObject_Str(o: *mut PyObject) -> *mut PyObject;
    fn PyFloat_AsDouble(o: *mut PyObject) -> c_double;
    fn PySlice_Unpack(
        slice: *mut PyObject,
        start: *mut isize,
        stop: *mut isize,
        step: *mut isize,
    ) -> c_int;
}

/// Parks the thread forever if it is unwound while it calls Python.
struct ParkOnUnwind;

impl Drop for ParkOnUnwind {
    fn drop(&mut self) {
        // A panic of Rust is reported as usual.
        while !thread::panicking() {
            thread::park();
        }
    }
}

/// Calls `f`, which may never return because the interpreter ends the thread.
#[inline(always)]
fn guarded<T>(f: impl FnOnce() -> T) -> T {
    let guard = ParkOnUnwind;
    let result = f();
    mem::forget(guard);
    result
}

/// Arguments of a call: a value that converts to a Python tuple.
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
    let (what, with) = (callable.as_ptr(), args.as_ptr());
    let options = options.map_or(ptr::null_mut(), |options| options.as_ptr());
    // SAFETY: a callable, a tuple, and a dict or null, all borrowed for longer than the call.
    let result = guarded(|| unsafe { PyObject_Call(what, with, options) });
    // SAFETY: the call returned a new reference, or null with an exception set.
    unsafe { owned(py, result) }
}

/// The result of a call, or the exception that it set.
///
/// # Safety
/// `result` is a new reference, or null with an exception set.
unsafe fn owned(py: Python<'_>, result: *mut PyObject) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the caller's promise.
    unsafe { Bound::from_owned_ptr_or_err(py, result) }
}

/// `import module`
pub(crate) fn import<'py>(py: Python<'py>, module: &str) -> PyResult<Bound<'py, PyAny>> {
    let name = PyString::new(py, module);
    let what = name.as_ptr();
    // SAFETY: a string, borrowed for longer than the call.
    let result = guarded(|| unsafe { PyImport_Import(what) });
    // SAFETY: the call returned a new reference, or null with an exception set.
    unsafe { owned(py, result) }
}

/// `from module import name`, done once and kept in `cell`.
pub(crate) fn imported<'a, 'py>(
    py: Python<'py>,
    cell: &'a PyOnceLock<Py<PyAny>>,
    module: &str,
    name: &str,
) -> PyResult<&'a Bound<'py, PyAny>> {
    let made = || Ok::<_, PyErr>(attribute(&import(py, module)?, name)?.unbind());
    Ok(cell.get_or_try_init(py, made)?.bind(py))
}

/// `target.name`
pub(crate) fn attribute<'py>(
    target: &Bound<'py, PyAny>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let name = PyString::intern(target.py(), name);
    let (what, which) = (target.as_ptr(), name.as_ptr());
    // SAFETY: an object and a string, borrowed for longer than the call.
    let result = guarded(|| unsafe { PyObject_GetAttr(what, which) });
    // SAFETY: the call returned a new reference, or null with an exception set.
    unsafe { owned(target.py(), result) }
}

/// The integer that `operator.index(target)` returns: an `int`, or the result of `__index__`.
pub(crate) fn index<'py>(target: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if target.is_exact_instance_of::<PyInt>() {
        return Ok(target.clone());
    }
    let what = target.as_ptr();
    // SAFETY: an object, borrowed for longer than the call.
    let result = guarded(|| unsafe { PyNumber_Index(what) });
    // SAFETY: the call returned a new reference, or null with an exception set.
    unsafe { owned(target.py(), result) }
}

/// `float(target)` of a number: a `float`, or the result of `__float__` or `__index__`.
pub(crate) fn float(target: &Bound<'_, PyAny>) -> PyResult<f64> {
    let what = target.as_ptr();
    let found = match target.is_exact_instance_of::<PyInt>() {
        // SAFETY: an `int`, which is converted without running Python code.
        true => unsafe { ffi::PyLong_AsDouble(what) },
        // SAFETY: an object, borrowed for longer than the call.
        false => guarded(|| unsafe { PyFloat_AsDouble(what) }),
    };
    // -1 is the sign of an error, and also a number.
    match if found == -1.0 { PyErr::take(target.py()) } else { None } {
        Some(error) => Err(error),
        None => Ok(found),
    }
}

/// `repr(target)`
pub(crate) fn repr(target: &Bound<'_, PyAny>) -> PyResult<String> {
    let what = target.as_ptr();
    // SAFETY: an object, borrowed for longer than the call.
    let result = guarded(|| unsafe { PyObject_Repr(what) });
    // SAFETY: the call returned a new reference, or null with an exception set.
    unsafe { owned(target.py(), result) }?.extract()
}

/// `str(target)`
pub(crate) fn str(target: &Bound<'_, PyAny>) -> PyResult<String> {
    let what = target.as_ptr();
    // SAFETY: an object, borrowed for longer than the call.
    let result = guarded(|| unsafe { PyObject_Str(what) });
    // SAFETY: the call returned a new reference, or null with an exception set.
    unsafe { owned(target.py(), result) }?.extract()
}

/// What a slice selects from `len` elements: the first index, the step, and the number of elements.
pub(crate) fn slice(slice: &Bound<'_, PySlice>, len: isize) -> PyResult<(isize, isize, usize)> {
    let (what, mut found) = (slice.as_ptr(), [0_isize; 3]);
    let [start, stop, step] = &mut found;
    let (start, stop, step) = (&raw mut *start, &raw mut *stop, &raw mut *step);
    // SAFETY: a slice, borrowed for longer than the call, and three numbers for the results.
    if guarded(|| unsafe { PySlice_Unpack(what, start, stop, step) }) != 0 {
        return Err(PyErr::fetch(slice.py()));
    }
    let [mut first, mut end, step] = found;
    // SAFETY: two numbers for the results; the step is not zero, which `PySlice_Unpack` refuses.
    let count = unsafe { ffi::PySlice_AdjustIndices(len, &raw mut first, &raw mut end, step) };
    Ok((first, step, count.unsigned_abs()))
}

/// Calls `each` with every item of an iterable. Stops at the first failure.
pub(crate) fn for_each<'py, E: From<PyErr>>(
    iterable: &Bound<'py, PyAny>,
    mut each: impl FnMut(Bound<'py, PyAny>) -> Result<(), E>,
) -> Result<(), E> {
    let (py, what) = (iterable.py(), iterable.as_ptr());
    // SAFETY: an object, borrowed for longer than the call.
    let iterator = guarded(|| unsafe { PyObject_GetIter(what) });
    // SAFETY: the call returned a new reference, or null with an exception set.
    let iterator = unsafe { owned(py, iterator) }?;
    loop {
        let what = iterator.as_ptr();
        // SAFETY: an iterator, borrowed for longer than the call.
        let next = guarded(|| unsafe { PyIter_Next(what) });
        // SAFETY: a new reference, or null; at the end of the iteration without an exception.
        match unsafe { Bound::from_owned_ptr_or_opt(py, next) } {
            Some(next) => each(next)?,
            None => return PyErr::take(py).map_or(Ok(()), |error| Err(error.into())),
        }
    }
}

/// `target.name(*args)`
pub(crate) fn method<'py>(
    target: &Bound<'py, PyAny>,
    name: &str,
    args: impl Args<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    call(&attribute(target, name)?, args, None)
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
