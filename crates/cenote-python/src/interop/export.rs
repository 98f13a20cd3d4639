//! What keeps a tensor's memory valid while Python has a pointer to it.
//!
//! Each array, buffer and capsule keeps an [`Export`] for as long as its pointer may be used. (An array of an
//! immutable tensor keeps the tensor object instead.) A writable export is a loan: while it is alive, the
//! tensor cannot be published, so no other process reads memory that Python code is writing.

use cenote::{Loan, NotWritable, Tensor, TensorMemory};
use pyo3::prelude::*;

use crate::runtime::error::Result;

/// A pointer to a tensor's memory, and the loan that keeps it valid. Dropping it needs no GIL.
#[derive(Debug)]
pub(crate) struct Export(Loan);

/// The access that an export has to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading.
    Read,
    /// Writing if the tensor is writable, else reading.
    WriteIfAllowed,
    /// Writing. Fails if the tensor is read-only.
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

/// Whether a tensor can still be written: this process made it, it was never sent, and its kind of memory can
/// be lent.
pub(crate) fn may_write(tensor: &Tensor) -> bool {
    let can_be_lent = matches!(tensor.memory(), TensorMemory::Mem | TensorMemory::Shm);
    can_be_lent && matches!(tensor.not_writable(), None | Some(NotWritable::Shared))
}

/// The base of an array: it keeps the array's memory.
///
/// It does not implement the buffer protocol. So `array.flags.writeable = True` fails for a read-only array.
#[pyclass(frozen, module = "cenote._cenote")]
#[derive(Debug)]
pub(crate) struct Memory(pub(crate) Export);

#[pymethods]
impl Memory {
    fn __repr__(&self) -> String {
        let access = if self.0.is_writable() { "writable" } else { "read-only" };
        format!("<memory of {:?}, {access}>", self.0.tensor())
    }
}
