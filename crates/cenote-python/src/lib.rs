//! The native part of the Python package `cenote`: the classes and functions that Python code sees. Each of
//! them makes one call of the core and adds only what Python needs. No folder imports one below it in this
//! table:
//!
//! | folder | contents | imports, besides `runtime` and `args` |
//! |---|---|---|
//! | `runtime` | the interpreter: its lock, calls into Python code, exceptions, waiting | |
//! | `args` | arguments from Python: integers, seconds, shapes, dtypes, descriptors | |
//! | `interop` | memory that numpy, DLPack and the buffer protocol share with the core | |
//! | `host_pool` | `MemoryPool`, `UnifiedBuffer` | `interop` |
//! | `tensor` | `Tensor` | `interop` |
//! | `outbox` | tensors that are in a queue of `multiprocessing` | |
//! | `pool` | `TensorPool` | `interop`, `tensor`, `outbox` |
//! | `inspect` | `topics()`, `pools()`, `copies()` | `pool` |
//! | `domain` | `Image`, `PointCloud`, `DepthImage` | `interop`, `tensor`, `pool` |
//! | `topic` | `Topic` | `tensor`, `pool`, `inspect`, `domain` |
//! | `multiprocessing` | what `_multiprocessing.py` calls | `tensor`, `outbox`, `domain` |
//!
//! Python gets a pointer to a tensor's memory only together with an object that keeps the memory alive: an
//! `interop::export::Export`, which is a loan while Python may write, or an immutable tensor.
#![allow(clippy::needless_pass_by_value, reason = "arguments from Python are values")]

mod args;
mod domain;
mod host_pool;
mod inspect;
mod interop;
mod multiprocessing;
mod outbox;
mod pool;
mod runtime;
mod tensor;
mod topic;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// The native part of cenote. It relies on the interpreter's lock (GIL), so a free-threaded Python turns the
/// lock on when it imports this module.
#[pymodule(gil_used = true)]
mod _cenote {
    #[pymodule_export]
    use crate::domain::depth_image::DepthImage;
    #[pymodule_export]
    use crate::domain::image::Image;
    #[pymodule_export]
    use crate::domain::point_cloud::PointCloud;
    #[pymodule_export]
    use crate::host_pool::memory_pool::{MemoryPool, get_memory_pool};
    #[pymodule_export]
    use crate::host_pool::unified_buffer::UnifiedBuffer;
    #[pymodule_export]
    use crate::inspect::copies::copies;
    #[pymodule_export]
    use crate::inspect::{pools, topics};
    #[pymodule_export]
    use crate::multiprocessing::_hold;
    #[pymodule_export]
    use crate::outbox::outbox::{
        _acknowledge, _after_fork, _release, _wait_until_received, in_transit, recall,
    };
    #[pymodule_export]
    use crate::pool::TensorPool;
    #[pymodule_export]
    use crate::tensor::Tensor;
    #[pymodule_export]
    use crate::topic::topic::Topic;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // With `PYTHON_GIL=0` a free-threaded Python ignores that the module needs the lock.
        if let Ok(is_locked) = module.py().import("sys")?.getattr("_is_gil_enabled")
            && !is_locked.call0()?.is_truthy()?
        {
            let why = "cenote needs the interpreter's lock: run Python without PYTHON_GIL=0";
            return Err(PyImportError::new_err(why));
        }
        interop::numpy_array::prepare(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
