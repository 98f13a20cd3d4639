//! The free cache of one pool: the blocks that it retains, within its cap.
//!
//! The cap is divided. Each byte of it is in exactly one place: free in the ledger, unused in the
//! share of a shard, or used by a block that the shard retains. It moves between shard and block
//! under the lock of the shard, and between shards under the lock of the ledger. So the cap holds at
//! every moment, although threads share no counter.
//!
//! Buffers refer to the cache for as long as they live, and may outlive their pool. So caches are
//! never freed. A cache whose pool and buffers are gone serves the next pool, see
//! [`process`](super::process).
//!
//! Locks are taken in the order registry, ledger, shard. Memory is mapped and freed under no lock.

use std::time::Duration;

use super::amount::Amount;
use super::block::{Block, BlockOwner, Extras, Fit, ReturnsTo};
use super::settings::Settings;
use super::shard::{Shard, ShardState};
use crate::host_pool::stats::BufferStats;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, AtomicUsize, Lock, LockGuard, yield_now};

/// Threads are numbered in turn, so this many threads in a row do not share a shard. At most 64: one
/// bit of [`FreeCache::used`] each.
pub(super) const SHARDS: usize = if cfg!(all(test, loom)) { 2 } else { 64 };

/// If at least this many bytes return to the allocator at once, the pool calls `malloc_trim`, so
/// that they return to the system.
const TRIM_FROM: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct FreeCache {
    shards: [Shard; SHARDS],
    /// Bit `n` is set before shard `n` is first used.
    used: AtomicU64,
    ledger: Lock<Ledger>,
    /// Bytes in use and retained. Changes only when memory comes from the system or returns to it.
    allocated: AtomicUsize,
    /// The largest value of `allocated`.
    peak: AtomicUsize,
    /// Schedules a search for idle blocks. False if no thread can search.
    watch: fn(&'static FreeCache) -> bool,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Whether a pool uses this cache.
    open: bool,
    cap: Amount,
    /// The part of the cap that no shard has.
    free: Amount,
    /// Larger blocks are not retained.
    largest: usize,
    /// Blocks that were not used for this long are freed.
    idle: Option<Duration>,
    /// Whether the decay thread searches this cache for idle blocks. If it should and does not, no
    /// shard has a share of the cap, or the thread could not be started.
    watched: bool,
}

/// All locks of a cache, held while the process forks. Dropping it frees no memory, so a child that was
/// just forked can.
#[cfg_attr(not(all(test, loom)), allow(dead_code, reason = "the locks are held, not used"))]
pub(super) struct Frozen {
    ledger: LockGuard<'static, Ledger>,
    shards: [LockGuard<'static, ShardState>; SHARDS],
}

impl FreeCache {
    /// A cache for a later pool. It calls `watch` when it begins to retain blocks that may become idle.
    pub(super) fn new(watch: fn(&'static FreeCache) -> bool) -> FreeCache {
        FreeCache {
            shards: std::array::from_fn(|_| Shard::new()),
            used: AtomicU64::new(0),
            ledger: Lock::new(Ledger::default()),
            allocated: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            watch,
        }
    }

    /// Whether neither a pool nor a buffer uses this cache.
    pub(super) fn is_free(&self) -> bool {
        // In this order: without a pool `allocated` does not grow. The last access of a buffer reduces
        // it with Release, so this Acquire load sees everything that the buffer did before.
        !self.ledger.lock().open && self.allocated.load(Acquire) == 0
    }

    /// Prepares a free cache for a new pool.
    pub(super) fn open(&self, cap: Amount, settings: &Settings) {
        let (largest, idle) = (settings.largest_retained, settings.idle);
        self.shards.iter().for_each(|shard| shard.reset(largest));
        self.used.store(0, Relaxed);
        self.peak.store(0, Relaxed);
        *self.ledger.lock() = Ledger { open: true, cap, free: cap, largest, idle, watched: false };
    }

    /// Frees all retained blocks. From now on blocks that return are freed, too.
    pub(super) fn close(&self) {
        let mut evicted = Vec::new();
        let mut ledger = self.ledger.lock();
        ledger.cap = Amount::default();
        ledger.free = Amount::default();
        evicted.extend(self.shards().map(Shard::close));
        ledger.open = false;
        drop(ledger);
        for mut bins in evicted {
            self.free(std::iter::from_fn(|| bins.take_oldest()).collect());
        }
    }

    /// Takes all locks, for a fork.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "fork hooks are for Linux"))]
    pub(super) fn freeze(&'static self) -> Frozen {
        let ledger = self.ledger.lock();
        Frozen { ledger, shards: self.shards.each_ref().map(Shard::lock) }
    }

    /// The shards that were used.
    fn shards(&self) -> impl Iterator<Item = &Shard> {
        let used = self.used.load(Relaxed);
        self.shards
            .iter()
            .enumerate()
            .filter_map(move |(index, shard)| (used & (1 << index) != 0).then_some(shard))
    }

    /// The shard of this index, which is used from now on.
    fn used_shard(&self, index: usize) -> &Shard {
        let bit = 1 << index;
        if self.used.load(Relaxed) & bit == 0 {
            // Relaxed: the share of a shard and its blocks come through the lock of the ledger,
            // which this thread takes later.
            self.used.fetch_or(bit, Relaxed);
        }
        &self.shards[index]
    }

    /// Takes a block that the shard retains.
    #[inline]
    pub(super) fn take(&self, shard: usize, fit: Fit) -> Option<Block> {
        self.shards[shard].take(fit)
    }

    /// Takes a block that another shard retains.
    pub(super) fn take_from_others(&'static self, index: usize, fit: Fit) -> Option<Block> {
        // While the block is between two shards its part of the cap is in neither.
        let _ledger = self.ledger.lock();
        self.move_to(index, fit)
    }

    /// Moves a block to another shard and hands it out. The caller holds the lock of the ledger.
    pub(super) fn move_to(&'static self, index: usize, fit: Fit) -> Option<Block> {
        let shard = self.used_shard(index);
        let mut block = self.shards().find_map(|other| other.cede(fit))?;
        block.set_returns_to(Some(ReturnsTo { owner: self, shard: index }));
        shard.receive(&mut block, fit.bytes, self.latest_tick());
        Some(block)
    }

    /// Hands out a new block.
    pub(super) fn hand_out(
        &'static self,
        index: usize,
        block: &mut Block,
        bytes: usize,
        refused: Extras,
    ) {
        block.set_returns_to(Some(ReturnsTo { owner: self, shard: index }));
        self.used_shard(index).miss(block, bytes, refused);
    }

    /// Retains a block for which the share of the shard has no room, or frees it. Returns whether it
    /// is retained.
    #[cold]
    pub(super) fn retain(&'static self, index: usize, mut block: Block) -> bool {
        block.set_returns_to(Some(ReturnsTo { owner: self, shard: index }));
        let shard = self.used_shard(index);
        let mut evicted = Vec::new();
        let retained = self.try_retain(shard, block, &mut evicted);
        let is_retained = retained.is_ok();
        if let Err(block) = retained {
            shard.count(|stats| stats.rejects += 1);
            evicted.push(block);
        }
        self.free(evicted);
        is_retained
    }

    fn try_retain(
        &'static self,
        shard: &Shard,
        block: Block,
        evicted: &mut Vec<Block>,
    ) -> Result<(), Block> {
        let mut ledger = self.ledger.lock();
        let amount = block.amount();
        if !ledger.cap.covers(amount) || block.size() > ledger.largest {
            return Err(block);
        }
        let watch = ledger.idle.is_some() && !std::mem::replace(&mut ledger.watched, true);
        let mut share = shard.collect(amount);
        let missing = amount.saturating_minus(share);
        share.add(self.gather(&mut ledger, missing, evicted));
        let retained = shard.retain(block, share, self.latest_tick());
        drop(ledger);
        if watch && !(self.watch)(self) {
            // The next block that needs the ledger tries again.
            self.ledger.lock().watched = false;
        }
        retained
    }

    /// Gathers a part of the cap: free, then unused, then that of the least recently used blocks.
    ///
    /// The cap must cover `need`. Then this ends, because no part of the cap is lost. It may only
    /// move from one place to another meanwhile.
    fn gather(&self, ledger: &mut Ledger, need: Amount, evicted: &mut Vec<Block>) -> Amount {
        let mut gathered = ledger.free.at_most(need);
        ledger.free.subtract(gathered);
        loop {
            for shard in self.shards() {
                gathered.add(shard.collect(need.saturating_minus(gathered)));
            }
            if gathered.covers(need) {
                return gathered;
            }
            match self.evict_oldest() {
                Some(block) => {
                    gathered.add(block.amount());
                    evicted.push(block);
                }
                None => yield_now(),
            }
        }
    }

    /// Removes the least recently used block of all shards, with its part of the cap.
    fn evict_oldest(&self) -> Option<Block> {
        let oldest = |shard| Some((Shard::oldest(shard)?, shard));
        let (_, shard) = self.shards().filter_map(oldest).min_by_key(|&(stamp, _)| stamp)?;
        shard.evict()
    }

    /// The latest tick of all shards. A shard that comes to the ledger advances its own to this, so
    /// that stamps of different shards can be compared.
    fn latest_tick(&self) -> u64 {
        self.shards().map(Shard::tick).max().unwrap_or(0)
    }

    /// Frees the blocks that were not used since the last call. Returns whether to call again. If
    /// not, nothing is retained, and the next block that is retained requests the search.
    pub(super) fn decay(&self) -> bool {
        let mut evicted = Vec::new();
        let mut ledger = self.ledger.lock();
        let mut retains = false;
        for shard in self.shards() {
            let mut more = true;
            while more {
                let decayed = shard.decay();
                ledger.free.add(decayed.share);
                evicted.extend(decayed.blocks);
                more = decayed.more;
                retains |= !more && !decayed.is_empty;
            }
        }
        ledger.watched = retains;
        drop(ledger);
        self.free_and_trim(evicted);
        retains
    }

    /// Frees least recently used blocks until at most `bytes` bytes are retained.
    pub(super) fn trim(&self, bytes: usize) {
        self.free_and_trim(self.evict(self.stats().retained_bytes.saturating_sub(bytes)));
    }

    /// Removes least recently used blocks of at least `bytes` bytes in sum, if there are.
    pub(super) fn evict(&self, bytes: usize) -> Vec<Block> {
        let mut evicted = Vec::new();
        let mut sum = 0;
        let mut ledger = self.ledger.lock();
        while sum < bytes {
            let Some(block) = self.evict_oldest() else { break };
            ledger.free.add(block.amount());
            sum += block.size();
            evicted.push(block);
        }
        evicted
    }

    /// Frees blocks, and has the allocator return their memory to the system.
    fn free_and_trim(&self, blocks: Vec<Block>) {
        let on_heap: usize =
            blocks.iter().filter(|block| block.is_on_heap()).map(Block::size).sum();
        self.free(blocks);
        if on_heap >= TRIM_FROM {
            #[cfg(target_os = "linux")]
            crate::sys::malloc::trim();
        }
    }

    /// Frees blocks. The caller holds no lock: unmapping takes long.
    pub(super) fn free(&self, blocks: Vec<Block>) {
        for block in blocks {
            let size = block.size();
            drop(block);
            self.count_freed(size);
        }
    }

    /// Counts `size` more bytes as allocated, if that stays within `limit`. Otherwise returns how
    /// many bytes are left below it.
    pub(super) fn admit(&self, size: usize, limit: usize) -> Result<(), usize> {
        let admitted = self.allocated.fetch_update(Relaxed, Relaxed, |allocated| {
            allocated.checked_add(size).filter(|&sum| sum <= limit)
        });
        admitted.map(drop).map_err(|allocated| limit.saturating_sub(allocated))
    }

    /// Counts `size` bytes as no longer allocated.
    pub(super) fn count_freed(&self, size: usize) {
        // Release: pairs with `is_free`.
        self.allocated.fetch_sub(size, Release);
    }

    /// Records that admitted memory was allocated.
    pub(super) fn note_peak(&self) {
        self.peak.fetch_max(self.allocated.load(Relaxed), Relaxed);
    }

    pub(super) fn allocated(&self) -> usize {
        self.allocated.load(Relaxed)
    }

    /// Counts zeros that need not be written, after a block of the shard was handed out.
    #[inline]
    pub(super) fn count_zeros_skipped(&self, shard: usize, bytes: u64) {
        self.shards[shard].count(|stats| stats.zero_bytes_skipped += bytes);
    }

    /// Changes the counters of a shard.
    pub(super) fn count(&self, shard: usize, change: impl FnOnce(&mut BufferStats)) {
        self.used_shard(shard).count(change);
    }

    pub(super) fn cap(&self) -> Amount {
        self.ledger.lock().cap
    }

    /// Changes the cap in bytes. A lower cap evicts at once.
    pub(super) fn set_cap(&self, bytes: usize) {
        let mut evicted = Vec::new();
        let mut ledger = self.ledger.lock();
        let old = std::mem::replace(&mut ledger.cap.bytes, bytes);
        ledger.free.bytes += bytes.saturating_sub(old);
        let surplus = Amount { bytes: old.saturating_sub(bytes), blocks: 0 };
        let gathered = self.gather(&mut ledger, surplus, &mut evicted);
        ledger.free.add(gathered.saturating_minus(surplus));
        drop(ledger);
        self.free_and_trim(evicted);
    }

    pub(super) fn stats(&self) -> BufferStats {
        let mut sum = BufferStats::default();
        self.shards().for_each(|shard| sum.add(&shard.stats()));
        sum.peak_bytes = self.peak.load(Relaxed);
        sum
    }
}

impl BlockOwner for FreeCache {
    fn release(&'static self, shard: usize, block: Block) {
        if let Err(block) = self.shards[shard].release(block) {
            self.retain(shard, block);
        }
    }

    fn detach(&self, shard: usize, block: &Block) {
        self.shards[shard].detach(block);
        self.count_freed(block.size());
    }
}

#[cfg(all(test, loom))]
impl Frozen {
    /// The cap, and the sum of its parts.
    pub(super) fn cap_and_parts(&self) -> (Amount, Amount) {
        let mut parts = self.ledger.free;
        parts.add(self.shares());
        (self.ledger.cap, parts)
    }

    /// The shares of all shards.
    pub(super) fn shares(&self) -> Amount {
        self.sum(ShardState::share)
    }

    pub(super) fn retained(&self) -> Amount {
        self.sum(ShardState::retained)
    }

    fn sum(&self, part: impl Fn(&ShardState) -> Amount) -> Amount {
        let mut sum = Amount::default();
        self.shards.iter().for_each(|shard| sum.add(part(shard)));
        sum
    }

    pub(super) fn is_watched(&self) -> bool {
        self.ledger.watched
    }
}
