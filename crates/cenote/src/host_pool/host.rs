//! The host side of a unified buffer, and what shares it beyond a borrow.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::typed::Buffer;
use crate::error::Result;
use crate::tensor::map::{cast, check_dtype};
use crate::types::dtype::{DType, Element};

/// The host bytes, with what was done to them that the pool must not get back.
pub(super) struct Host {
    pub(super) bytes: Buffer<u8>,
    pub(super) pinned: bool,
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.pinned {
            self.bytes.unpin();
        }
    }
}

/// A share of the host side of a [`UnifiedBuffer`](super::UnifiedBuffer): its bytes, which do not
/// change while this lives.
#[derive(Clone)]
pub struct HostView {
    pub(super) host: Arc<Host>,
    pub(super) dtype: DType,
}

impl HostView {
    /// The elements in row-major order.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        check_dtype::<T>(self.dtype)?;
        cast(self)
    }
}

impl Deref for HostView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.host.bytes
    }
}

impl fmt::Debug for HostView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostView<{}>({} bytes)", self.dtype, self.len())
    }
}

/// Write access to the host side of a [`UnifiedBuffer`](super::UnifiedBuffer) by pointer, until
/// dropped: for code that Rust's borrows do not reach, such as arrays of Python.
///
/// While a loan is alive the host side counts as newer, whenever it was uploaded last. The memory
/// returns to the pool when buffer and loans are gone, so a loan outlives the buffer's release, the
/// pool's `clear` and the pool.
///
/// ```
/// use cenote::{DType, MemoryPool};
///
/// let pool = MemoryPool::new()?;
/// let mut buffer = pool.acquire(&[4], DType::U8)?;
/// let loan = buffer.lend()?;
/// // SAFETY: four bytes, lent to us, and nobody looks meanwhile.
/// unsafe { loan.as_ptr().write_bytes(7, loan.len()) };
/// assert_eq!(buffer.host::<u8>()?, [7; 4]);
///
/// pool.release(&mut buffer)?;
/// assert_eq!(pool.pool_size(), 0);
/// drop(loan);
/// assert_eq!(pool.pool_size(), 1);
/// # Ok::<(), cenote::Error>(())
/// ```
pub struct HostLoan {
    host: Arc<Host>,
}

impl HostLoan {
    pub(super) fn new(host: &Arc<Host>) -> HostLoan {
        HostLoan { host: Arc::clone(host) }
    }

    /// The first byte. It and the [`len`](HostLoan::len) - 1 that follow may be read and written
    /// until the loan is dropped, by one thread at a time, and while nobody reads them through the
    /// buffer: by [`host`](super::UnifiedBuffer::host), or by what uploads them.
    pub fn as_ptr(&self) -> *mut u8 {
        self.host.bytes.start().as_ptr()
    }

    /// The number of bytes lent.
    #[allow(clippy::len_without_is_empty, reason = "there always are some")]
    pub fn len(&self) -> usize {
        self.host.bytes.len()
    }
}

impl fmt::Debug for HostLoan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostLoan({} bytes)", self.len())
    }
}
