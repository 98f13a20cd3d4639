//! The native part of the Python package `cenote`: one core call per function, and what Python needs
//! around it.
//!
//! ```text
//!   wording, call  →  error  →  apart, copies, number, descriptor, dtype, shape, timeout, index
//!     →  export  →  buffer_protocol, dlpack, array  →  library  →  tensor, door
//!     →  scalar, transit  →  pool  →  listing, domain  →  image, cloud, depth  →  departure, carrier, attached  →  topic
//!     →  unified_buffer  →  memory_pool
//! ```
//!
//! Whatever Python sees of a tensor's memory goes through `export`: it keeps the memory alive, and
//! has it counted while it may be written.
#![allow(clippy::needless_pass_by_value, reason = "arguments from Python are values")]

mod apart;
mod array;
mod attached;
mod buffer_protocol;
mod call;
mod carrier;
mod cloud;
mod copies;
mod departure;
mod depth;
mod descriptor;
mod dlpack;
mod domain;
mod door;
mod dtype;
mod error;
mod export;
mod image;
mod index;
mod library;
mod listing;
mod memory_pool;
mod number;
mod pool;
mod scalar;
mod shape;
mod tensor;
mod timeout;
mod topic;
mod transit;
mod unified_buffer;
mod wording;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// The native part of cenote. Some of it counts on the interpreter's lock, so a Python that can do without
/// turns it on.
#[pymodule(gil_used = true)]
mod _cenote {
    #[pymodule_export]
    use crate::cloud::PointCloud;
    #[pymodule_export]
    use crate::copies::copies;
    #[pymodule_export]
    use crate::departure::_depart;
    #[pymodule_export]
    use crate::depth::DepthImage;
    #[pymodule_export]
    use crate::image::Image;
    #[pymodule_export]
    use crate::listing::{pools, topics};
    #[pymodule_export]
    use crate::memory_pool::{MemoryPool, get_memory_pool};
    #[pymodule_export]
    use crate::pool::TensorPool;
    #[pymodule_export]
    use crate::tensor::Tensor;
    #[pymodule_export]
    use crate::topic::Topic;
    #[pymodule_export]
    use crate::transit::{_arrived, _failed, _forked, _linger, in_transit, recall};
    #[pymodule_export]
    use crate::unified_buffer::UnifiedBuffer;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Whoever forbids the interpreter's lock (`PYTHON_GIL=0`) is not asked whether the module needs it.
        if let Ok(is_locked) = module.py().import("sys")?.getattr("_is_gil_enabled")
            && !is_locked.call0()?.is_truthy()?
        {
            let why = "cenote needs the interpreter's lock: run Python without PYTHON_GIL=0";
            return Err(PyImportError::new_err(why));
        }
        array::prepare(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
