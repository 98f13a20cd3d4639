//! What the Python classes of messages have in common: a lock around the value of the core, and the methods of
//! [`domain_class`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use cenote::{Domain, Message};
use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;

use crate::tensor::Tensor;

/// A type of the core that topics carry, and its Python class.
pub(crate) trait MessageClass: Domain + Message + Sync {
    /// Makes a Python object of the value.
    fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>>;

    /// The Python class.
    type Object: PyClass<Frozen = True> + Sync;

    /// Calls `f` with the value of an object. The object may be locked meanwhile, so `f` must neither run
    /// Python code nor release the GIL.
    fn with<R>(object: &Self::Object, f: impl FnOnce(&Self) -> R) -> R;
}

/// The core's value in a Python object. The lock is for its header, which can be set. It is never held while
/// Python code runs.
#[derive(Debug)]
pub(crate) struct LockedValue<T>(Mutex<T>);

impl<T: Clone> LockedValue<T> {
    pub(crate) fn new(value: T) -> LockedValue<T> {
        LockedValue(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // A panic leaves the value whole: setting a field of the header happens or does not.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with the value, and unlocks it before it returns the result. Use it for calls that may fail:
    /// making an exception runs Python code, and so must happen without the lock.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock())
    }

    /// A clone of the value, which shares its memory.
    pub(crate) fn get(&self) -> T {
        self.lock().clone()
    }
}

impl MessageClass for cenote::Tensor {
    fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, Tensor(self))?.into_any())
    }

    type Object = Tensor;

    #[inline]
    fn with<R>(object: &Tensor, f: impl FnOnce(&Self) -> R) -> R {
        f(&object.0)
    }
}

/// Implements what all these classes share, for `$class(LockedValue<$core>)`, which extends `Tensor`.
macro_rules! domain_class {
    ($class:ident, $core:ty) => {
        impl $class {
            /// Makes an object, for a constructor.
            pub(crate) fn init(value: $core) -> pyo3::PyClassInitializer<$class> {
                let tensor = $class::base_of(&value);
                let locked = $crate::domain::class::LockedValue::new(value);
                pyo3::PyClassInitializer::from($crate::tensor::Tensor(tensor))
                    .add_subclass($class(locked))
            }

            /// Makes an object.
            fn make(py: Python<'_>, value: $core) -> PyResult<Py<$class>> {
                Py::new(py, $class::init(value))
            }
        }

        impl $crate::domain::class::MessageClass for $core {
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
            /// The name of the coordinate frame, at most 48 bytes. Empty unless set.
            #[getter]
            fn frame_id(&self) -> String {
                self.0.lock().frame_id().to_owned()
            }

            #[setter]
            fn set_frame_id(&self, frame_id: &str) -> Result<()> {
                Ok(self.0.with(|value| value.set_frame_id(frame_id))?)
            }

            /// The time of the recording, in nanoseconds. 0 unless set.
            #[getter]
            fn stamp_ns(&self) -> u64 {
                self.0.lock().stamp_ns()
            }

            #[setter]
            fn set_stamp_ns(
                &self,
                #[pyo3(from_py_with = $crate::args::integer::count::stamp_ns)] stamp_ns: u64,
            ) {
                self.0.lock().set_stamp_ns(stamp_ns);
            }

            /// Its number in a sequence. 0 unless set.
            #[getter]
            fn seq(&self) -> u64 {
                self.0.lock().seq()
            }

            #[setter]
            fn set_seq(&self, #[pyo3(from_py_with = $crate::args::integer::count::seq)] seq: u64) {
                self.0.lock().set_seq(seq);
            }

            /// A writable copy in the pool of this process, with the same metadata.
            fn copy(&self, py: Python<'_>) -> Result<Py<$class>> {
                let value = self.0.get();
                let copied = py.detach(|| value.over(value.tensor().to_pooled()?))?;
                Ok($class::make(py, copied)?)
            }

            /// Some hundred bytes that name this object and its metadata, for `from_descriptor` in any
            /// process of this user. Keep the object until the other process has called that. From now on
            /// the memory is read-only.
            ///
            /// Fails if the memory is in no pool, or while an array that can write it is alive.
            fn descriptor<'py>(&self, py: Python<'py>) -> Result<Bound<'py, pyo3::types::PyBytes>> {
                let descriptor = self.0.get().descriptor()?;
                Ok(pyo3::types::PyBytes::new(py, descriptor.as_bytes()))
            }

            /// The object that a descriptor names, of any process of this user. It is read-only. Fails if
            /// that object has another type: `Tensor.from_descriptor` accepts all types.
            #[staticmethod]
            fn from_descriptor(
                py: Python<'_>,
                descriptor: $crate::args::descriptor::DescriptorArg,
            ) -> Result<Py<$class>> {
                let value = py.detach(|| <$core>::from_descriptor(&descriptor.0))?;
                Ok($class::make(py, value)?)
            }
        }
    };
}
pub(crate) use domain_class;
