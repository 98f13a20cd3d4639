//! Calls of Python code, from which a thread may not come back.
//!
//! When the interpreter ends, a daemon thread that asks for it again is ended too, wherever it is: up
//! to Python 3.13 by `pthread_exit`, which unwinds its stack. If that came upon a frame of Rust it would
//! be the end of the whole process. Whatever can let other threads run (Python code, and numpy when
//! it copies) is therefore called here, with nothing in the frame but a guard that has such a thread
//! wait for the end instead. PyO3 does the same where it asks for the interpreter itself.
#![allow(unsafe_code, reason = "the C interface of Python")]

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
    let (what, with) = (callable.as_ptr(), args.as_ptr());
    let options = options.map_or(ptr::null_mut(), |options| options.as_ptr());
    // SAFETY: a callable, a tuple, and a dict or null, all borrowed for longer than the call.
    let result = guarded(|| unsafe { PyObject_Call(what, with, options) });
    // SAFETY: that is what it gives.
    unsafe { given(py, result) }
}

/// What a call gave: a new reference, or null with an exception set.
///
/// # Safety
/// It is that.
unsafe fn given(py: Python<'_>, result: *mut PyObject) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the caller's promise.
    unsafe { Bound::from_owned_ptr_or_err(py, result) }
}

/// `import module`
pub(crate) fn import<'py>(py: Python<'py>, module: &str) -> PyResult<Bound<'py, PyAny>> {
    let name = PyString::new(py, module);
    let what = name.as_ptr();
    // SAFETY: a string, borrowed for longer than the call.
    let result = guarded(|| unsafe { PyImport_Import(what) });
    // SAFETY: that is what it gives.
    unsafe { given(py, result) }
}

/// Something of a module, which is imported once.
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
    // SAFETY: that is what it gives.
    unsafe { given(target.py(), result) }
}

/// The number that counts as an index: an `int`, or what `__index__` gives.
pub(crate) fn index<'py>(target: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if target.is_exact_instance_of::<PyInt>() {
        return Ok(target.clone());
    }
    let what = target.as_ptr();
    // SAFETY: an object, borrowed for longer than the call.
    let result = guarded(|| unsafe { PyNumber_Index(what) });
    // SAFETY: that is what it gives.
    unsafe { given(target.py(), result) }
}

/// A number that counts as a float: one, or what `__float__` or `__index__` gives.
pub(crate) fn float(target: &Bound<'_, PyAny>) -> PyResult<f64> {
    let what = target.as_ptr();
    let found = match target.is_exact_instance_of::<PyInt>() {
        // SAFETY: an `int`. No Python code is asked.
        true => unsafe { ffi::PyLong_AsDouble(what) },
        // SAFETY: an object, borrowed for longer than the call.
        false => guarded(|| unsafe { PyFloat_AsDouble(what) }),
    };
    // It may be that number, too.
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
    // SAFETY: that is what it gives.
    unsafe { given(target.py(), result) }?.extract()
}

/// `str(target)`
pub(crate) fn str(target: &Bound<'_, PyAny>) -> PyResult<String> {
    let what = target.as_ptr();
    // SAFETY: an object, borrowed for longer than the call.
    let result = guarded(|| unsafe { PyObject_Str(what) });
    // SAFETY: that is what it gives.
    unsafe { given(target.py(), result) }?.extract()
}

/// What a slice selects of `len` elements: the first, the step from one to the next, and how many.
pub(crate) fn slice(slice: &Bound<'_, PySlice>, len: isize) -> PyResult<(isize, isize, usize)> {
    let (what, mut found) = (slice.as_ptr(), [0_isize; 3]);
    let [start, stop, step] = &mut found;
    let (start, stop, step) = (&raw mut *start, &raw mut *stop, &raw mut *step);
    // SAFETY: a slice, borrowed for longer than the call, and three numbers that it writes.
    if guarded(|| unsafe { PySlice_Unpack(what, start, stop, step) }) != 0 {
        return Err(PyErr::fetch(slice.py()));
    }
    let [mut first, mut end, step] = found;
    // SAFETY: two numbers that it writes; the step is not zero, which was refused above.
    let count = unsafe { ffi::PySlice_AdjustIndices(len, &raw mut first, &raw mut end, step) };
    Ok((first, step, count.unsigned_abs()))
}

/// Calls `each` with what an iterable has, until that fails.
pub(crate) fn for_each<'py, E: From<PyErr>>(
    iterable: &Bound<'py, PyAny>,
    mut each: impl FnMut(Bound<'py, PyAny>) -> Result<(), E>,
) -> Result<(), E> {
    let (py, what) = (iterable.py(), iterable.as_ptr());
    // SAFETY: an object, borrowed for longer than the call.
    let iterator = guarded(|| unsafe { PyObject_GetIter(what) });
    // SAFETY: that is what it gives.
    let iterator = unsafe { given(py, iterator) }?;
    loop {
        let what = iterator.as_ptr();
        // SAFETY: an iterator, borrowed for longer than the call.
        let next = guarded(|| unsafe { PyIter_Next(what) });
        // SAFETY: a new reference, or null, at the end without an exception.
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
