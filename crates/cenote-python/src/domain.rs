//! What images, point clouds and depth images have in common: each is a tensor, also for Python, and
//! has a header.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cenote::{Domain, Header, Message};
use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;

use crate::error::Result;

/// What a topic carries, and the class that Python knows it by.
pub(crate) trait Class: Domain + Message + Sync {
    /// A new object.
    fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>>;

    /// The class.
    type Object: PyClass<Frozen = True> + Sync;

    /// Calls `f` with what is in an object, which may be locked meanwhile: `f` runs no Python, and keeps the
    /// interpreter.
    fn with<R>(object: &Self::Object, f: impl FnOnce(&Self) -> R) -> R;
}

/// The value behind an object. Its header can be set, so it is locked, but never while Python runs.
#[derive(Debug)]
pub(crate) struct Held<T>(Mutex<T>);

impl<T: Clone> Held<T> {
    pub(crate) fn new(value: T) -> Held<T> {
        Held(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // Headers are set whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What may fail: an exception is made of that when the lock is free again, for that runs Python.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock())
    }

    pub(crate) fn get(&self) -> T {
        self.lock().clone()
    }
}

/// A header of what is given.
pub(crate) fn header(frame_id: &str, stamp_ns: u64, seq: u64) -> Result<Header> {
    let mut header = Header::default();
    header.set_frame_id(frame_id)?;
    (header.stamp_ns, header.seq) = (stamp_ns, seq);
    Ok(header)
}

/// As constructors take it, and `_unpickle`.
pub(crate) type HeaderParts = (String, u64, u64);

pub(crate) fn parts(header: &Header) -> HeaderParts {
    (header.frame_id().to_owned(), header.stamp_ns, header.seq)
}

/// What of a header is set, as `__repr__` shows it.
pub(crate) fn shown(header: &Header) -> String {
    let mut text = String::new();
    if !header.frame_id().is_empty() {
        text += &format!(", frame_id={:?}", header.frame_id());
    }
    for (name, value) in [("stamp_ns", header.stamp_ns), ("seq", header.seq)] {
        if value != 0 {
            text += &format!(", {name}={value}");
        }
    }
    text
}

/// The part of a class that is the same for all: `$class(Held<$core>)`, which extends `Tensor`.
macro_rules! domain_class {
    ($class:ident, $core:ty) => {
        impl $class {
            /// A new object of it.
            pub(crate) fn init(value: $core) -> pyo3::PyClassInitializer<$class> {
                let tensor = $class::base_of(&value);
                let held = $crate::domain::Held::new(value);
                pyo3::PyClassInitializer::from($crate::tensor::Tensor(tensor))
                    .add_subclass($class(held))
            }

            fn make(py: Python<'_>, value: $core) -> PyResult<Py<$class>> {
                Py::new(py, $class::init(value))
            }
        }

        impl $crate::domain::Class for $core {
            fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
                Ok(Bound::new(py, $class::init(self))?.into_any())
            }

            type Object = $class;

            #[inline]
            fn with<R>(object: &$class, f: impl FnOnce(&Self) -> R) -> R {
                f(&object.0.lock())
            }
        }

        #[pymethods]
        impl $class {
            /// The name of the coordinate frame, of at most 48 bytes. Empty unless set.
            #[getter]
            fn frame_id(&self) -> String {
                self.0.lock().frame_id().to_owned()
            }

            #[setter]
            fn set_frame_id(&self, frame_id: &str) -> Result<()> {
                Ok(self.0.with(|value| value.set_frame_id(frame_id))?)
            }

            /// When it was recorded, in nanoseconds. 0 unless set.
            #[getter]
            fn stamp_ns(&self) -> u64 {
                self.0.lock().stamp_ns()
            }

            #[setter]
            fn set_stamp_ns(
                &self,
                #[pyo3(from_py_with = $crate::number::count::stamp_ns)] stamp_ns: u64,
            ) {
                self.0.lock().set_stamp_ns(stamp_ns);
            }

            /// Its number in a sequence. 0 unless set.
            #[getter]
            fn seq(&self) -> u64 {
                self.0.lock().seq()
            }

            #[setter]
            fn set_seq(&self, #[pyo3(from_py_with = $crate::number::count::seq)] seq: u64) {
                self.0.lock().set_seq(seq);
            }

            /// A copy that can be written, in the pool of this process, with the same metadata.
            fn copy(&self, py: Python<'_>) -> Result<Py<$class>> {
                let value = self.0.get();
                let copied = py.detach(|| value.over(value.tensor().to_pooled()?))?;
                Ok($class::make(py, copied)?)
            }

            /// Some hundred bytes that stand for it in any process of this user, metadata included:
            /// see `from_descriptor`. Hold it until that was called. From here on nobody can write it.
            ///
            /// An error if it is in no pool, or while something that can write it is alive.
            fn descriptor<'py>(&self, py: Python<'py>) -> Result<Bound<'py, pyo3::types::PyBytes>> {
                let descriptor = self.0.get().descriptor()?;
                Ok(pyo3::types::PyBytes::new(py, descriptor.as_bytes()))
            }

            /// What a descriptor stands for, of any process of this user. To be read only. An error if
            /// that is something else: `Tensor.from_descriptor` takes anything.
            #[staticmethod]
            fn from_descriptor(
                py: Python<'_>,
                descriptor: $crate::descriptor::DescriptorArg,
            ) -> Result<Py<$class>> {
                let value = py.detach(|| <$core>::from_descriptor(&descriptor.0))?;
                Ok($class::make(py, value)?)
            }
        }
    };
}
pub(crate) use domain_class;
