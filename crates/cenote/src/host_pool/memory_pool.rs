//! The pool of buffers whose shape and dtype are known at run time.

use std::sync::OnceLock;

use super::pool::{BufferPool, default_cap};
use super::retain::{MAPPED_FROM, registry};
use super::unified::UnifiedBuffer;
use crate::error::Result;
use crate::types::dtype::DType;
use crate::types::layout::Layout;

/// The most buffers that a pool retains by default.
const MAX_BUFFERS: usize = 100;

/// The largest buffer that a pool retains by default.
const MAX_BUFFER_BYTES: usize = 1 << 30;

/// A pool of buffers with a shape and a dtype. A buffer of about the same bytes reuses the memory,
/// whatever its shape and dtype.
///
/// ```
/// use cenote::{DType, MemoryPool};
///
/// let pool = MemoryPool::new()?;
/// let mut buffer = pool.acquire(&[480, 640], DType::F32)?;
/// buffer.host_mut::<f32>()?.fill(0.5);
/// pool.release(&mut buffer)?;
/// assert!(pool.release(&mut buffer).is_err());
///
/// pool.acquire(&[640, 480, 2], DType::U16)?;
/// assert_eq!(pool.stats().hits, 1);
/// # Ok::<(), cenote::Error>(())
/// ```
///
/// A new buffer holds zeros, a reused one its old bytes. A dropped buffer returns to the pool like a
/// released one.
///
/// Three limits apply to retained memory: the bytes as in every [`BufferPool`]
/// (`CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES`, 100 MiB if not set), the number of buffers, and the size
/// of one buffer. Clones are handles to the same pool.
#[derive(Debug, Clone)]
pub struct MemoryPool {
    pool: BufferPool,
}

/// The statistics of a [`MemoryPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPoolStats {
    /// Retained buffers.
    pub pool_size: usize,
    /// Buffers that were acquired.
    pub total_acquired: u64,
    /// Buffers that were released or dropped.
    pub total_released: u64,
    /// Acquired buffers with retained memory.
    pub hits: u64,
    /// Acquired buffers with new memory.
    pub misses: u64,
    /// Buffers in use.
    pub live: usize,
    /// Bytes in use.
    pub live_bytes: usize,
    /// Bytes retained.
    pub retained_bytes: usize,
    /// The most bytes in use and retained together at any time.
    pub peak_bytes: usize,
    /// Retained buffers freed to make room for others, or for a lower limit.
    pub evictions: u64,
    /// Returned buffers that were freed because they exceed a limit.
    pub rejects: u64,
    /// Retained buffers freed because they were idle.
    pub decays: u64,
}

impl MemoryPool {
    /// A pool that retains up to 100 buffers of up to 1 GiB each, and no more bytes in all than the
    /// environment says. An environment that is not understood is an error.
    pub fn new() -> Result<MemoryPool> {
        MemoryPool::with_limits(MAX_BUFFERS, MAX_BUFFER_BYTES)
    }

    /// A pool that retains at most `max_buffers` buffers, each of at most `max_buffer_bytes`, and no
    /// more bytes in all than the environment says.
    pub fn with_limits(max_buffers: usize, max_buffer_bytes: usize) -> Result<MemoryPool> {
        let pool = BufferPool::options()
            .max_retained_bytes(default_cap()?)
            .max_retained_blocks(max_buffers)
            .largest_retained_block(max_buffer_bytes)
            .build();
        Ok(MemoryPool { pool })
    }

    /// The pool of the process, with the limits of [`new`](MemoryPool::new). Fails if the environment
    /// variable has a wrong value.
    pub fn global() -> Result<&'static MemoryPool> {
        static GLOBAL: OnceLock<MemoryPool> = OnceLock::new();
        if let Some(pool) = GLOBAL.get() {
            return Ok(pool);
        }
        let pool = MemoryPool::new()?;
        // Under the registry's lock no fork interrupts this. A pool that is not used is dropped after
        // the lock is released, because its drop takes that lock.
        let mut pool = Some(pool);
        let registry = registry();
        let global = GLOBAL.get_or_init(|| pool.take().expect("called at most once"));
        drop(registry);
        Ok(global)
    }

    /// A buffer with any values.
    pub fn acquire(&self, shape: &[usize], dtype: DType) -> Result<UnifiedBuffer> {
        let layout = Layout::contiguous(shape, dtype.size())?;
        let len = layout.nbytes();
        self.acquire_bytes(layout, dtype, len)
    }

    /// Like [`acquire`](MemoryPool::acquire), with a host side that is locked in memory, for faster
    /// transfers. [`is_pinned`](UnifiedBuffer::is_pinned) returns whether the system allowed it.
    pub fn acquire_pinned(&self, shape: &[usize], dtype: DType) -> Result<UnifiedBuffer> {
        let layout = Layout::contiguous(shape, dtype.size())?;
        // Whole pages are locked, so the block must not share a page with other blocks.
        let len = layout.nbytes().max(MAPPED_FROM);
        let mut buffer = self.acquire_bytes(layout, dtype, len)?;
        buffer.pin();
        Ok(buffer)
    }

    fn acquire_bytes(&self, layout: Layout, dtype: DType, size: usize) -> Result<UnifiedBuffer> {
        // Old bytes are valid numbers, but may be invalid as `bool`.
        let mut bytes = self.pool.acquire_bytes(size, dtype == DType::Bool)?;
        bytes.truncate(layout.nbytes());
        Ok(UnifiedBuffer::from_host(bytes, layout, dtype, self.pool.number()))
    }

    /// Releases a buffer to this pool. From now on every use of it fails with [`Released`], also a
    /// second release. Fails if [views](UnifiedBuffer::view) of it are alive, and the error has their
    /// number. If [loans](UnifiedBuffer::lend) of it are alive it is released, and its memory returns
    /// with the last of them.
    ///
    /// [`Released`]: crate::Error::Released
    pub fn release(&self, buffer: &mut UnifiedBuffer) -> Result<()> {
        buffer.release_to(self.pool.number())
    }

    /// Frees all retained buffers.
    pub fn clear(&self) {
        self.pool.clear();
    }

    /// The statistics of the pool.
    pub fn stats(&self) -> MemoryPoolStats {
        let stats = self.pool.stats();
        let total_acquired = stats.hits + stats.misses;
        MemoryPoolStats {
            pool_size: stats.retained,
            total_acquired,
            total_released: total_acquired - stats.live as u64,
            hits: stats.hits,
            misses: stats.misses,
            live: stats.live,
            live_bytes: stats.live_bytes,
            retained_bytes: stats.retained_bytes,
            peak_bytes: stats.peak_bytes,
            evictions: stats.evictions,
            rejects: stats.rejects,
            decays: stats.decays,
        }
    }

    /// Retained buffers.
    pub fn pool_size(&self) -> usize {
        self.pool.len()
    }

    /// Bytes retained.
    pub fn total_bytes(&self) -> usize {
        self.pool.retained_bytes()
    }

    /// The most bytes that the pool retains.
    pub fn max_retained_bytes(&self) -> usize {
        self.pool.max_retained_bytes()
    }

    /// Changes the most bytes that the pool retains. A lower limit frees buffers at once.
    pub fn set_max_retained_bytes(&self, bytes: usize) {
        self.pool.set_max_retained_bytes(bytes);
    }
}

impl UnifiedBuffer {
    /// A buffer with any values from the [global pool](MemoryPool::global). Its device side is host
    /// memory, see [`HostDevice`](super::HostDevice).
    pub fn new(shape: &[usize], dtype: DType) -> Result<UnifiedBuffer> {
        MemoryPool::global()?.acquire(shape, dtype)
    }
}
