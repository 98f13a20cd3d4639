//! What keeps the memory of an array of a `UnifiedBuffer`.

use cenote::host_pool::{DeviceView, HostLoan, HostView};
use pyo3::prelude::*;

/// The base of an array: it keeps the array's memory.
///
/// It does not implement the buffer protocol. So `array.flags.writeable = True` fails for a read-only array.
#[pyclass(frozen, module = "cenote._cenote")]
pub(super) struct ArrayBase(#[allow(dead_code, reason = "only kept alive")] pub(super) Side);

/// One side of a buffer, as an array uses it.
#[derive(Debug)]
pub(super) enum Side {
    /// The host side, writable.
    HostLoan(HostLoan),
    /// The host side, read-only.
    HostView(HostView),
    /// The device side, read-only.
    DeviceView(DeviceView),
}

impl Side {
    /// The first byte, the number of bytes, and whether they can be written.
    pub(super) fn bytes(&self) -> (*mut u8, usize, bool) {
        let read_only = |bytes: &[u8]| (bytes.as_ptr().cast_mut(), bytes.len(), false);
        match self {
            Side::HostLoan(loan) => (loan.as_ptr(), loan.len(), true),
            Side::HostView(view) => read_only(view),
            Side::DeviceView(view) => read_only(view),
        }
    }
}
