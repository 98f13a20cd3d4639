//! The host side of a unified buffer, its views and its loans.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::Result;
use crate::host_pool::buffer::Buffer;
use crate::tensor::map::{cast, check_dtype};
use crate::types::dtype::{DType, Element};

/// The host bytes. They are unlocked before they return to the pool.
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

/// A read-only view of the host side of a [`UnifiedBuffer`](super::UnifiedBuffer). Its bytes do not
/// change while the view is alive.
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

/// Write access by pointer to the host side of a [`UnifiedBuffer`](super::UnifiedBuffer), for code
/// outside Rust's borrow rules, such as Python arrays.
///
/// While a loan is alive the host side counts as newer, also right after an upload. The memory returns
/// to the pool when the buffer and its loans are gone. So a loan stays valid after the release of the
/// buffer, a `clear` of the pool, and the end of the pool.
///
/// ```
/// use cenote::{DType, MemoryPool};
///
/// let pool = MemoryPool::new()?;
/// let mut buffer = pool.acquire(&[4], DType::U8)?;
/// let loan = buffer.lend()?;
/// // SAFETY: the loan covers four bytes, and no other code accesses them meanwhile.
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

    /// The first of [`len`](HostLoan::len) bytes, which may be read and written until the loan is
    /// dropped: by one thread at a time, and not while the buffer reads them, which
    /// [`host`](super::UnifiedBuffer::host) and every upload do.
    pub fn as_ptr(&self) -> *mut u8 {
        self.host.bytes.start().as_ptr()
    }

    /// The number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.host.bytes.len()
    }
}

impl fmt::Debug for HostLoan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostLoan({} bytes)", self.len())
    }
}
