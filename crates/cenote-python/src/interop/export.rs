//! What keeps a tensor's memory alive, and counted, while Python has a pointer to it.
//!
//! Everything that hands out a pointer (arrays, buffers, capsules) keeps an [`Export`] for as long as
//! the pointer may be used, or the tensor itself where nobody writes it any more. An export that can be written is
//! a loan: as long as it is alive the tensor is not published, so nobody in another process reads what is being
//! written.

use cenote::{Loan, NotWritable, Tensor, TensorMemory};
use pyo3::prelude::*;

use crate::runtime::error::Result;

/// A pointer to a tensor's memory, and what keeps it valid. Dropping it needs no interpreter.
#[derive(Debug)]
pub(crate) struct Export(Loan);

/// What is asked of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Only to read.
    Read,
    /// To write where that is allowed, else to read.
    WriteIfAllowed,
    /// To write, or it is an error.
    Write,
}

impl Export {
    pub(crate) fn new(tensor: &Tensor, wanted: Access) -> Result<Export> {
        let loan = match wanted {
            Access::Read => tensor.lend_to_read(),
            Access::Write => tensor.lend(),
            Access::WriteIfAllowed => tensor.lend().or_else(|_| tensor.lend_to_read()),
        };
        Ok(Export(loan?))
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        self.0.tensor()
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.0.is_writable()
    }

    /// The address of the first element.
    pub(crate) fn address(&self) -> *mut u8 {
        self.0.as_ptr()
    }
}

/// Whether a tensor can still be written: it is of this process, was never sent, and is in memory that
/// can be lent.
pub(crate) fn may_write(tensor: &Tensor) -> bool {
    let lendable = matches!(tensor.memory(), TensorMemory::Mem | TensorMemory::Shm);
    lendable && matches!(tensor.not_writable(), None | Some(NotWritable::Shared))
}

/// The base of an array: what is behind its memory.
///
/// It has no buffer of its own, so numpy cannot be talked into making a read-only array writable.
#[pyclass(frozen, module = "cenote._cenote")]
#[derive(Debug)]
pub(crate) struct Memory(pub(crate) Export);

#[pymethods]
impl Memory {
    fn __repr__(&self) -> String {
        let access = if self.0.is_writable() { "to write" } else { "to read" };
        format!("<memory of {:?}, {access}>", self.0.tensor())
    }
}
