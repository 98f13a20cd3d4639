//! The pool for those who know shape and dtype at run time only.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::gate;
use super::memory::MAPPED_FROM;
use super::pool::{BufferPool, default_cap};
use super::unified::UnifiedBuffer;
use crate::error::Result;
use crate::types::dtype::DType;
use crate::types::layout::Layout;

/// Buffers that a pool retains unless it is told otherwise.
const MAX_BUFFERS: usize = 100;

/// The largest buffer that a pool retains unless it is told otherwise.
const MAX_BUFFER_BYTES: usize = 1 << 30;

/// Buffers of a shape and dtype, used again by whatever needs as many bytes.
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
/// New buffers hold zeros and used ones whatever was in them. A buffer that is dropped returns to
/// the pool as if it were released.
///
/// What is retained is limited three times: in bytes, as every [`BufferPool`] is
/// (`CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES`, 100 MiB if that is not set), in buffers, and in the size
/// of one buffer. Clones are handles to the same pool.
#[derive(Debug, Clone)]
pub struct MemoryPool {
    pool: BufferPool,
    /// Tells the buffers of different pools apart.
    number: u64,
}

/// What a [`MemoryPool`] has done and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPoolStats {
    /// Buffers that wait to be used again.
    pub pool_size: usize,
    /// Buffers that were handed out.
    pub total_acquired: u64,
    /// Buffers that came back.
    pub total_released: u64,
    /// Buffers handed out that had been used before.
    pub hits: u64,
    /// Buffers handed out that were new.
    pub misses: u64,
    /// Buffers that are in use.
    pub live: usize,
    /// Bytes of the memory in use.
    pub live_bytes: usize,
    /// Bytes of the memory that waits to be used again.
    pub retained_bytes: usize,
    /// The most bytes that were in use and waiting together at any time.
    pub peak_bytes: usize,
    /// Buffers that waited and were freed to make room for others, or for a lower limit.
    pub evictions: u64,
    /// Buffers that came back and were freed because a limit forbids to retain them.
    pub rejects: u64,
    /// Buffers that waited and were freed because nobody used them for a while.
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
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let pool = BufferPool::options()
            .max_retained_bytes(default_cap()?)
            .max_retained_blocks(max_buffers)
            .largest_retained_block(max_buffer_bytes)
            .build();
        Ok(MemoryPool { pool, number: NEXT.fetch_add(1, Relaxed) })
    }

    /// The pool that the whole process shares, with the limits of [`new`](MemoryPool::new). While
    /// the environment is not understood every call is an error.
    pub fn global() -> Result<&'static MemoryPool> {
        static GLOBAL: OnceLock<MemoryPool> = OnceLock::new();
        if let Some(pool) = GLOBAL.get() {
            return Ok(pool);
        }
        let pool = MemoryPool::new()?;
        let _inside = gate::enter();
        Ok(GLOBAL.get_or_init(|| pool))
    }

    /// A buffer that holds anything until it is written.
    pub fn acquire(&self, shape: &[usize], dtype: DType) -> Result<UnifiedBuffer> {
        let layout = Layout::contiguous(shape, dtype.size())?;
        let len = layout.nbytes();
        self.acquire_bytes(layout, dtype, len)
    }

    /// Like [`acquire`](MemoryPool::acquire), with a host side that is locked in memory, as devices
    /// like it. [`is_pinned`](UnifiedBuffer::is_pinned) tells whether the system allowed that.
    pub fn acquire_pinned(&self, shape: &[usize], dtype: DType) -> Result<UnifiedBuffer> {
        let layout = Layout::contiguous(shape, dtype.size())?;
        // Whole pages are locked, so the block must not share its own with others.
        let len = layout.nbytes().max(MAPPED_FROM);
        let mut buffer = self.acquire_bytes(layout, dtype, len)?;
        buffer.pin();
        Ok(buffer)
    }

    fn acquire_bytes(&self, layout: Layout, dtype: DType, size: usize) -> Result<UnifiedBuffer> {
        // Old bytes are valid numbers but not valid truth values.
        let mut bytes = self.pool.acquire_bytes(size, dtype == DType::Bool)?;
        bytes.truncate(layout.nbytes());
        Ok(UnifiedBuffer::from_host(bytes, layout, dtype, self.number))
    }

    /// Takes a buffer back. From now on every use of it is an error, [`Released`]; so is releasing
    /// it again. While [views](UnifiedBuffer::view) of it are alive nothing happens, and the error
    /// says how many. While [loans](UnifiedBuffer::lend) of it are alive it is released, and its
    /// memory comes back with the last of them.
    ///
    /// [`Released`]: crate::Error::Released
    pub fn release(&self, buffer: &mut UnifiedBuffer) -> Result<()> {
        buffer.release_to(self.number)
    }

    /// Frees all buffers that wait to be used again.
    pub fn clear(&self) {
        self.pool.clear();
    }

    /// What the pool has done and what it holds.
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

    /// Buffers that wait to be used again.
    pub fn pool_size(&self) -> usize {
        self.pool.len()
    }

    /// Bytes of the buffers that wait to be used again.
    pub fn total_bytes(&self) -> usize {
        self.pool.retained_bytes()
    }

    /// The most bytes that may wait to be used again.
    pub fn max_retained_bytes(&self) -> usize {
        self.pool.max_retained_bytes()
    }

    /// Changes the most bytes that may wait to be used again. Lowering it frees at once.
    pub fn set_max_retained_bytes(&self, bytes: usize) {
        self.pool.set_max_retained_bytes(bytes);
    }
}
