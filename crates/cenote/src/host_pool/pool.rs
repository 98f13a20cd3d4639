//! The pool of typed buffers.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use super::buffer::{Buffer, UninitBuffer};
use super::byte_size;
use super::retain::{Amount, Block, Extras, Fit, LimitReached, OnLimit, Settings, Store};
use super::stats::BufferStats;
use crate::error::{Error, Result};
use crate::intervals::IDLE_BLOCK;
use crate::types::dtype::Element;

/// The environment variable with the retention cap of new pools.
const ENV: &str = "CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES";

/// The retention cap without that variable.
const DEFAULT_CAP: usize = 100 << 20;

/// A pool of host memory: scratch buffers in nanoseconds.
///
/// Buffers of all element types share the same blocks, aligned to 64 bytes. A buffer returns its
/// block when it is dropped, on any thread. The pool retains returned blocks up to a cap and frees
/// the least recently used ones beyond it. Clones are handles to the same pool.
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
    /// A pool with the cap in the environment variable `CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES`
    /// (`4096`, `100MiB`, `1GB`), or 100 MiB if it is not set. Any other value is an error.
    pub fn new() -> Result<BufferPool> {
        Ok(BufferPool::with_max_retained_bytes(default_cap()?))
    }

    /// A pool that retains at most `bytes` bytes; 0 retains nothing.
    pub fn with_max_retained_bytes(bytes: usize) -> BufferPool {
        BufferPool::options().max_retained_bytes(bytes).build()
    }

    /// A pool without a cap: it retains every block until the block is idle.
    pub fn unbounded() -> BufferPool {
        BufferPool::with_max_retained_bytes(usize::MAX)
    }

    /// The options of a new pool.
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

    /// Memory for `len` elements, not initialised.
    #[inline]
    pub fn acquire<T: Element>(&self, len: usize) -> Result<UninitBuffer<T>> {
        UninitBuffer::acquire(&self.store, len)
    }

    /// `len` elements that are zero (`false`). Writes zeros only where the memory may not be zero.
    pub fn acquire_zeroed<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::acquire_zeroed(&self.store, len)
    }

    /// An empty buffer with capacity for at least `capacity` elements.
    pub fn acquire_with_capacity<T: Element>(&self, capacity: usize) -> Result<Buffer<T>> {
        Ok(self.acquire(capacity)?.into_empty())
    }

    /// `len` bytes with any values, or zeros.
    pub(super) fn acquire_bytes(&self, len: usize, zeroed: bool) -> Result<Buffer<u8>> {
        Buffer::acquire_bytes(&self.store, len, zeroed)
    }

    /// Gives the memory of a vector to the pool. It then serves requests of up to the vector's
    /// capacity. Returns how many elements of type `T` it can serve.
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
    /// Most vectors do not start at a multiple of 64 bytes or do not have a size that the pool uses.
    /// Those are reallocated first, by an eighth and 64 bytes larger at most. (glibc does that for
    /// large vectors without a copy.) If the reallocation fails, the pool retains the aligned part
    /// of the memory and returns less than the capacity.
    ///
    /// Returns 0 if the memory was freed: the vector has less than 64 bytes, or exceeds the cap or a
    /// limit, which counts as a [reject](BufferStats::rejects). Vectors get no huge pages, locks or
    /// present pages; if the pool requests them, they count as refused.
    pub fn give<T: Element>(&self, vec: Vec<T>) -> usize {
        self.store.give(vec) / size_of::<T>()
    }

    /// Allocates up to `count` blocks for `len` elements each ahead of need, as far as the cap and the
    /// hard limit have room. Returns how many.
    pub fn reserve<T: Element>(&self, len: usize, count: usize) -> Result<usize> {
        let bytes = len.saturating_mul(size_of::<T>());
        if bytes == 0 { Ok(0) } else { self.store.reserve(bytes, count) }
    }

    /// Frees least recently used blocks until at most `bytes` bytes are retained.
    pub fn trim(&self, bytes: usize) {
        self.store.trim(bytes);
    }

    /// Frees all retained blocks. Buffers in use stay valid.
    pub fn clear(&self) {
        self.store.trim(0);
    }

    /// The retention cap: the most bytes that the pool retains.
    pub fn max_retained_bytes(&self) -> usize {
        self.store.cap()
    }

    /// Changes the retention cap. A lower cap frees blocks at once.
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

    /// No other pool of the process has this number.
    pub(super) fn number(&self) -> u64 {
        self.store.number()
    }

    /// The statistics of the pool.
    pub fn stats(&self) -> BufferStats {
        self.store.stats()
    }

    /// Starts to count from here.
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

/// Counts from the call of [`BufferPool::scope`] on.
#[derive(Debug)]
pub struct Scope<'a> {
    pool: &'a BufferPool,
    start: BufferStats,
}

impl Scope<'_> {
    /// The counts since the scope began, and the present state.
    pub fn stats(&self) -> BufferStats {
        self.pool.stats().since(&self.start)
    }
}

/// The options of a new pool, from [`BufferPool::options`].
#[derive(Debug)]
#[must_use = "call `build` to get a pool"]
pub struct BufferPoolOptions {
    cap: Amount,
    settings: Settings,
}

impl Default for BufferPoolOptions {
    fn default() -> Self {
        BufferPoolOptions {
            cap: Amount { bytes: DEFAULT_CAP, ..Amount::UNBOUNDED },
            settings: Settings {
                largest_retained: usize::MAX,
                extras: Extras::default(),
                idle: Some(IDLE_BLOCK),
                limit: usize::MAX,
                on_limit: None,
            },
        }
    }
}

impl BufferPoolOptions {
    /// Retains at most `bytes` bytes (default: 100 MiB).
    pub fn max_retained_bytes(mut self, bytes: usize) -> Self {
        self.cap.bytes = bytes;
        self
    }

    /// Retains at most `blocks` blocks (default: no limit).
    pub fn max_retained_blocks(mut self, blocks: usize) -> Self {
        self.cap.blocks = blocks;
        self
    }

    /// Retains no block of a buffer larger than `bytes`.
    pub fn largest_retained_block(mut self, bytes: usize) -> Self {
        // The block of a buffer of this size may be a little larger.
        let block = Fit::new(bytes).map_or(bytes, Block::size_for);
        self.settings.largest_retained = if bytes == 0 { 0 } else { block };
        self
    }

    /// Frees retained blocks after they were idle for this time, and before twice this time (default:
    /// 10 s). `None` retains them until `trim` or `clear`.
    ///
    /// One thread, `cenote-decay`, does this for all pools of the process. It searches each pool that
    /// retains something once per idle time. While no pool retains anything it sleeps. It costs
    /// nothing on acquire and release. In a forked child it starts when a buffer is first acquired.
    pub fn idle_after(mut self, idle: Option<Duration>) -> Self {
        self.settings.idle = idle;
        self
    }

    /// Limits the bytes in use and retained together (default: no limit). A request beyond the limit
    /// frees retained blocks first, and fails if that is not enough.
    pub fn hard_limit(mut self, bytes: usize) -> Self {
        self.settings.limit = bytes;
        self
    }

    /// Sets a function that is called before a request fails at the hard limit. It may drop buffers,
    /// and returns whether to try again; it must return true only if it dropped some. It runs on the
    /// thread of the request, and no lock is held. It must neither acquire from this pool nor own a
    /// clone of it.
    pub fn on_limit(
        mut self,
        on_limit: impl Fn(LimitReached) -> bool + Send + Sync + 'static,
    ) -> Self {
        let on_limit: Box<OnLimit> = Box::new(on_limit);
        self.settings.on_limit = Some(on_limit);
        self
    }

    /// Requests huge pages for blocks of at least 4 MiB. The [statistics](BufferStats) count what was
    /// refused, also for the next two options.
    pub fn huge_pages(mut self, wanted: bool) -> Self {
        self.settings.extras.huge_pages = wanted;
        self
    }

    /// Makes all pages of blocks of at least 4 MiB present when they are allocated.
    pub fn prefault(mut self, wanted: bool) -> Self {
        self.settings.extras.prefault = wanted;
        self
    }

    /// Locks blocks of at least 4 MiB in memory.
    pub fn lock(mut self, wanted: bool) -> Self {
        self.settings.extras.lock = wanted;
        self
    }

    /// Builds the pool.
    pub fn build(self) -> BufferPool {
        BufferPool { store: Arc::new(Store::new(self.cap, self.settings)) }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
impl BufferPool {
    pub(super) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }
}

impl<T: Element> Buffer<T> {
    /// A copy of `values` in memory of `pool`.
    ///
    /// ```
    /// use cenote::{Buffer, BufferPool};
    /// let pool = BufferPool::unbounded();
    /// let mask = Buffer::from_slice(&pool, &[true, false])?;
    /// assert_eq!(*mask, [true, false]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn from_slice(pool: &BufferPool, values: &[T]) -> Result<Self> {
        Ok(pool.acquire(values.len())?.write_slice(values)?)
    }

    /// `len` elements in memory of `pool`, each the return value of `value` for its index.
    pub fn from_fn(pool: &BufferPool, len: usize, value: impl FnMut(usize) -> T) -> Result<Self> {
        Ok(pool.acquire(len)?.write_fn(value))
    }
}

/// The cap in the environment variable, or the default.
pub(super) fn default_cap() -> Result<usize> {
    cap_from(std::env::var_os(ENV).as_deref())
}

fn cap_from(value: Option<&OsStr>) -> Result<usize> {
    let Some(value) = value else { return Ok(DEFAULT_CAP) };
    value.to_str().and_then(byte_size::parse).ok_or_else(|| Error::BadEnv {
        name: ENV,
        value: value.to_string_lossy().into(),
        expected: byte_size::EXPECTED,
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
