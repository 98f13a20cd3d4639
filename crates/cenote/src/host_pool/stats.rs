//! Statistics of a pool.

/// A snapshot of a [`BufferPool`](super::BufferPool).
///
/// The first group counts since the pool was built, or since a [`Scope`](super::Scope) began. The
/// second group is the present state; `peak_bytes` covers the whole life of the pool, in a scope too.
///
/// While other threads use the pool, a block that moves from one thread to another may be missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferStats {
    /// Requests served with a retained block.
    pub hits: u64,
    /// Requests that needed new memory.
    pub misses: u64,
    /// Retained blocks freed to make room for others, or for a lower cap.
    pub evictions: u64,
    /// Returned blocks and given vectors that were freed because they exceed the cap or a limit.
    pub rejects: u64,
    /// Retained blocks freed because they were idle.
    pub decays: u64,
    /// Bytes that [`acquire_zeroed`](super::BufferPool::acquire_zeroed) did not have to write,
    /// because they were still zero.
    pub zero_bytes_skipped: u64,
    /// Large blocks that did not get the huge pages requested. Like the next two it also counts large
    /// vectors that were [given](super::BufferPool::give), which get no extras.
    pub huge_pages_refused: u64,
    /// Large blocks whose pages could not be made present at allocation.
    pub prefaults_refused: u64,
    /// Large blocks that could not be locked in memory.
    pub locks_refused: u64,

    /// Buffers in use.
    pub live: usize,
    /// Bytes of the blocks in use.
    pub live_bytes: usize,
    /// Bytes of the blocks in use beyond the requested bytes.
    pub waste_bytes: usize,
    /// Blocks retained.
    pub retained: usize,
    /// Bytes of the blocks retained.
    pub retained_bytes: usize,
    /// The most bytes in use and retained together since the pool was built.
    pub peak_bytes: usize,
}

impl BufferStats {
    /// The counts since `start`, and the present state.
    ///
    /// ```
    /// # let pool = cenote::BufferPool::unbounded();
    /// let start = pool.stats();
    /// drop(pool.acquire::<f32>(1000)?);
    /// drop(pool.acquire::<f32>(1000)?);
    /// let during = pool.stats().since(&start);
    /// assert_eq!((during.hits, during.misses), (1, 1));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    #[must_use]
    pub fn since(&self, start: &BufferStats) -> BufferStats {
        BufferStats {
            hits: self.hits.saturating_sub(start.hits),
            misses: self.misses.saturating_sub(start.misses),
            evictions: self.evictions.saturating_sub(start.evictions),
            rejects: self.rejects.saturating_sub(start.rejects),
            decays: self.decays.saturating_sub(start.decays),
            zero_bytes_skipped: self.zero_bytes_skipped.saturating_sub(start.zero_bytes_skipped),
            huge_pages_refused: self.huge_pages_refused.saturating_sub(start.huge_pages_refused),
            prefaults_refused: self.prefaults_refused.saturating_sub(start.prefaults_refused),
            locks_refused: self.locks_refused.saturating_sub(start.locks_refused),
            ..*self
        }
    }

    /// Adds the statistics of one shard.
    pub(super) fn add(&mut self, part: &BufferStats) {
        self.hits += part.hits;
        self.misses += part.misses;
        self.evictions += part.evictions;
        self.rejects += part.rejects;
        self.decays += part.decays;
        self.zero_bytes_skipped += part.zero_bytes_skipped;
        self.huge_pages_refused += part.huge_pages_refused;
        self.prefaults_refused += part.prefaults_refused;
        self.locks_refused += part.locks_refused;
        self.live += part.live;
        self.live_bytes += part.live_bytes;
        self.waste_bytes += part.waste_bytes;
        self.retained += part.retained;
        self.retained_bytes += part.retained_bytes;
    }
}
