//! The pool as its users see it.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use super::block::Block;
use super::class::Fit;
use super::credit::Credit;
use super::memory::Extras;
use super::settings::{OnLimit, Settings, Shortage};
use super::size;
use super::stats::BufferStats;
use super::store::Store;
use super::typed::{Buffer, UninitBuffer};
use crate::error::{Error, Result};
use crate::types::dtype::Element;

/// The environment variable with the retention cap of new pools.
const ENV: &str = "CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES";

/// The retention cap where nothing else was said.
const DEFAULT_CAP: usize = 100 << 20;

/// Idle memory goes back to the system after this time, and before twice as long.
const DEFAULT_IDLE: Duration = Duration::from_secs(10);

/// Host memory that is used again: scratch buffers for nanoseconds.
///
/// Buffers of all element types share one store of blocks, aligned to 64 bytes. A buffer returns
/// its block when it is dropped, on any thread. What nobody uses is retained up to a cap; beyond
/// that the least recently used blocks are freed. Clones are handles to the same pool.
///
/// ```
/// use cenote::BufferPool;
///
/// let pool = BufferPool::new()?;
/// let mut scratch = pool.acquire_zeroed::<f32>(1_000)?;
/// scratch[0] = 1.0;
/// drop(scratch);
///
/// let reused = pool.acquire_zeroed::<i16>(2_000)?;
/// assert!(reused.iter().all(|&x| x == 0));
/// assert_eq!(pool.stats().hits, 1);
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BufferPool {
    store: Arc<Store>,
}

impl BufferPool {
    /// A pool with the cap of `CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES` (`4096`, `100MiB`, `1GB`),
    /// or 100 MiB if that is not set. A value that is not understood is an error.
    pub fn new() -> Result<BufferPool> {
        Ok(BufferPool::with_max_retained_bytes(default_cap()?))
    }

    /// A pool that retains at most `bytes` bytes; 0 retains nothing.
    pub fn with_max_retained_bytes(bytes: usize) -> BufferPool {
        BufferPool::options().max_retained_bytes(bytes).build()
    }

    /// A pool that retains everything until it is idle.
    pub fn unbounded() -> BufferPool {
        BufferPool::with_max_retained_bytes(usize::MAX)
    }

    /// Everything that can be set about a pool.
    ///
    /// ```
    /// use cenote::BufferPool;
    ///
    /// let pool = BufferPool::options().max_retained_bytes(1 << 20).hard_limit(64 << 20).build();
    /// assert!(pool.acquire::<u8>(65 << 20).is_err());
    /// ```
    pub fn options() -> BufferPoolOptions {
        BufferPoolOptions::default()
    }

    /// Room for `len` elements that hold anything until they are written.
    #[inline]
    pub fn acquire<T: Element>(&self, len: usize) -> Result<UninitBuffer<T>> {
        UninitBuffer::acquire(&self.store, len)
    }

    /// `len` elements that are zero (`false`). Only what was written since the system gave the
    /// memory has to be zeroed.
    pub fn acquire_zeroed<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::acquire_zeroed(&self.store, len)
    }

    /// An empty buffer with room for at least `capacity` elements to push.
    pub fn acquire_with_capacity<T: Element>(&self, capacity: usize) -> Result<Buffer<T>> {
        Ok(self.acquire(capacity)?.into_empty())
    }

    /// `len` bytes with any values, or zeros, for a handle that knows its dtype at run time.
    pub(super) fn acquire_bytes(&self, len: usize, zeroed: bool) -> Result<Buffer<u8>> {
        Buffer::acquire_bytes(&self.store, len, zeroed)
    }

    /// Gives the memory of a vector to the pool, for requests of up to as many elements as it has
    /// capacity for. Returns how many elements of its type the memory will serve.
    ///
    /// ```
    /// let pool = cenote::BufferPool::unbounded();
    /// let served = pool.give(vec![0.0_f64; 1000]);
    /// assert!(served >= 1000);
    /// let buffer = pool.acquire::<f64>(1000)?;
    /// assert_eq!(pool.stats().hits, 1);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    ///
    /// Allocators seldom give a vector memory that starts at a multiple of 64 bytes, and of a size
    /// that the pool uses. So it is reallocated to that size, an eighth and 64 bytes larger at most,
    /// before it is retained. (The usual allocator of Linux does that for large vectors without
    /// copying.) If even that is not to be had, the aligned part of the memory is retained as it is,
    /// and what is returned is less than the capacity.
    ///
    /// 0 means that the memory was freed: the vector has less than 64 bytes, or is too large for the
    /// cap or the limits of the pool, which is a [reject](BufferStats::rejects). Huge pages, locks
    /// and present pages that the pool asks for are not for vectors, and are counted as refused.
    pub fn give<T: Element>(&self, vec: Vec<T>) -> usize {
        self.store.give(vec) / size_of::<T>()
    }

    /// Allocates ahead of need: up to `count` blocks for `len` elements each, as far as the cap has
    /// room. Returns how many there are now more.
    pub fn reserve<T: Element>(&self, len: usize, count: usize) -> Result<usize> {
        let bytes = len.saturating_mul(size_of::<T>());
        if bytes == 0 { Ok(0) } else { self.store.reserve(bytes, count) }
    }

    /// Frees least recently used blocks until at most `bytes` bytes are retained.
    pub fn trim(&self, bytes: usize) {
        self.store.trim(bytes);
    }

    /// Frees all retained blocks. Buffers in use are not touched.
    pub fn clear(&self) {
        self.store.trim(0);
    }

    /// The retention cap in bytes.
    pub fn max_retained_bytes(&self) -> usize {
        self.store.cap().bytes
    }

    /// Changes the retention cap. Lowering it evicts at once.
    pub fn set_max_retained_bytes(&self, bytes: usize) {
        self.store.set_cap(bytes);
    }

    /// Bytes retained.
    pub fn retained_bytes(&self) -> usize {
        self.stats().retained_bytes
    }

    /// Blocks retained.
    pub fn len(&self) -> usize {
        self.stats().retained
    }

    /// Whether nothing is retained.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the pool has done and what it holds.
    pub fn stats(&self) -> BufferStats {
        self.store.stats()
    }

    /// Counts from now on.
    ///
    /// ```
    /// # let pool = cenote::BufferPool::unbounded();
    /// # drop(pool.acquire::<u8>(100)?);
    /// let scope = pool.scope();
    /// drop(pool.acquire::<u8>(100)?);
    /// assert_eq!((scope.stats().hits, scope.stats().misses), (1, 0));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn scope(&self) -> Scope<'_> {
        Scope { pool: self, start: self.stats() }
    }
}

/// Counts what a pool does from the moment that [`BufferPool::scope`] made it.
#[derive(Debug)]
pub struct Scope<'a> {
    pool: &'a BufferPool,
    start: BufferStats,
}

impl Scope<'_> {
    /// The counts since the scope began; the moment as it is.
    pub fn stats(&self) -> BufferStats {
        self.pool.stats().since(&self.start)
    }
}

/// How a pool should be; from [`BufferPool::options`].
#[derive(Debug)]
#[must_use = "`build` makes the pool"]
pub struct BufferPoolOptions {
    cap: Credit,
    settings: Settings,
}

impl Default for BufferPoolOptions {
    fn default() -> Self {
        BufferPoolOptions {
            cap: Credit { bytes: DEFAULT_CAP, ..Credit::UNBOUNDED },
            settings: Settings {
                largest_retained: usize::MAX,
                extras: Extras::default(),
                idle: Some(DEFAULT_IDLE),
                limit: usize::MAX,
                on_limit: None,
            },
        }
    }
}

impl BufferPoolOptions {
    /// Retains at most so many bytes (100 MiB if not said).
    pub fn max_retained_bytes(mut self, bytes: usize) -> Self {
        self.cap.bytes = bytes;
        self
    }

    /// Retains at most so many blocks (any number if not said).
    pub fn max_retained_blocks(mut self, blocks: usize) -> Self {
        self.cap.blocks = blocks;
        self
    }

    /// Does not retain the block of a buffer larger than this.
    pub fn largest_retained_block(mut self, bytes: usize) -> Self {
        // The block of a buffer of just this size may be a little larger.
        let block = Fit::new(bytes).map_or(bytes, Block::size_for);
        self.settings.largest_retained = if bytes == 0 { 0 } else { block };
        self
    }

    /// Frees retained blocks that were idle for this long (10 s if not said), and before twice as
    /// long; `None` keeps them until `trim` or `clear`.
    ///
    /// One thread, `cenote-decay`, does this for all pools of the process. It looks at a pool once in
    /// this time, and only at pools that retain something: when none does, it sleeps for good. It
    /// costs those who acquire and release nothing. In a forked child it starts again with the first
    /// buffer that is acquired.
    pub fn idle_after(mut self, idle: Option<Duration>) -> Self {
        self.settings.idle = idle;
        self
    }

    /// Fails requests that would bring buffers in use and retained blocks above this together.
    /// Retained blocks are freed first.
    pub fn hard_limit(mut self, bytes: usize) -> Self {
        self.settings.limit = bytes;
        self
    }

    /// Is called before a request fails at the hard limit. It may free buffers, and returns whether
    /// to try again: only if it freed something. It runs on the thread that asks, and no lock is
    /// held. It must neither acquire from this pool nor hold on to a clone of it.
    pub fn on_limit(mut self, ask: impl Fn(Shortage) -> bool + Send + Sync + 'static) -> Self {
        let ask: Box<OnLimit> = Box::new(ask);
        self.settings.on_limit = Some(ask);
        self
    }

    /// Asks for huge pages for blocks from 4 MiB. What was not granted is in the
    /// [statistics](BufferStats), as for the next two.
    pub fn huge_pages(mut self, wanted: bool) -> Self {
        self.settings.extras.huge_pages = wanted;
        self
    }

    /// Makes all pages of blocks from 4 MiB present when they are allocated.
    pub fn prefault(mut self, wanted: bool) -> Self {
        self.settings.extras.prefault = wanted;
        self
    }

    /// Locks blocks from 4 MiB in memory.
    pub fn lock(mut self, wanted: bool) -> Self {
        self.settings.extras.lock = wanted;
        self
    }

    /// Makes the pool.
    pub fn build(self) -> BufferPool {
        BufferPool { store: Store::new(self.cap, self.settings) }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
impl BufferPool {
    pub(super) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }
}

/// What the environment says, or the default.
pub(super) fn default_cap() -> Result<usize> {
    cap_from(std::env::var_os(ENV).as_deref())
}

fn cap_from(value: Option<&OsStr>) -> Result<usize> {
    let Some(value) = value else { return Ok(DEFAULT_CAP) };
    value.to_str().and_then(size::parse).ok_or_else(|| Error::BadEnv {
        name: ENV,
        value: value.to_string_lossy().into(),
        expected: size::EXPECTED,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_comes_from_the_environment_or_is_an_error() {
        let cap = |value: &str| cap_from(Some(value.as_ref()));
        assert_eq!(cap_from(None).unwrap(), 100 << 20);
        assert_eq!(cap("1GB").unwrap(), 1_000_000_000);
        assert_eq!(cap("0").unwrap(), 0);
        let message = cap("lots").unwrap_err().to_string();
        assert!(message.contains(ENV) && message.contains("lots") && message.contains("MiB"));
        assert!(cap("").is_err());
    }
}
