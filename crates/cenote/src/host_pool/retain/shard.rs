//! A shard: the part of a free cache that one thread uses almost alone.
//!
//! In the steady state a thread takes a block from its shard and returns it there. That costs one
//! uncontended lock, on cache lines that no other thread writes. Each shard has a share of the cap.
//! Retaining a block uses the share, taking a block frees it, so a shard needs the ledger of its
//! cache only when its working set grows.

use super::amount::Amount;
use super::bins::Bins;
use super::block::{Block, Extras, Fit};
use crate::host_pool::stats::BufferStats;
use crate::sync::{Lock, LockGuard};

/// The number of idle blocks that are removed in one go, to keep the time short for which a shard is
/// locked.
const DECAY_BATCH: usize = 64;

/// Aligned to two cache lines: processors fetch neighbouring lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Shard {
    state: Lock<ShardState>,
}

#[derive(Debug, Default)]
pub(super) struct ShardState {
    /// Counts returned blocks. At least as large as every stamp in `bins`.
    tick: u64,
    /// This shard's part of the cap. `bins` uses some of it, the rest is unused.
    share: Amount,
    /// The blocks of this shard. A block that is not in `bins` is in use.
    owned: Amount,
    /// The bytes that were requested of the blocks in use.
    requested: usize,
    /// The counters only; the other fields follow from this state.
    stats: BufferStats,
    /// A take or a put writes this and as few other fields as possible: every write has to be
    /// complete before the lock is released, so each field costs time.
    bins: Bins,
    /// `tick` when idle blocks were last searched.
    mark: u64,
    /// Larger blocks are not retained.
    largest: usize,
}

impl ShardState {
    #[inline]
    fn unused(&self) -> Amount {
        self.share.minus(self.bins.held())
    }

    fn in_use(&self) -> Amount {
        self.owned.minus(self.bins.held())
    }

    /// Retains a block of this shard. Gives up the block if the share has no room for it.
    #[inline]
    fn retain(&mut self, block: Block) -> Result<(), Block> {
        if block.size() > self.largest || !self.unused().covers(block.amount()) {
            self.owned.subtract(block.amount());
            return Err(block);
        }
        self.tick += 1;
        self.bins.put(block, self.tick);
        Ok(())
    }

    /// Counts a block that is in use from now on.
    fn adopt(&mut self, block: &mut Block, bytes: usize) {
        self.owned.add(block.amount());
        self.requested += bytes;
        block.set_requested(bytes);
    }

    /// Removes the oldest block, with its part of the share.
    fn remove_oldest(&mut self) -> Option<Block> {
        let block = self.bins.take_oldest()?;
        self.share.subtract(block.amount());
        self.owned.subtract(block.amount());
        Some(block)
    }
}

#[cfg(all(test, loom))]
impl ShardState {
    pub(super) fn share(&self) -> Amount {
        self.share
    }

    pub(super) fn retained(&self) -> Amount {
        self.bins.held()
    }
}

impl Shard {
    pub(super) fn new() -> Shard {
        Shard { state: Lock::new(ShardState::default()) }
    }

    /// Prepares an unused shard for a new pool. It does not retain blocks larger than `largest`.
    pub(super) fn reset(&self, largest: usize) {
        *self.lock() = ShardState { largest, ..ShardState::default() };
    }

    /// Takes the share away for good, and returns the retained blocks. Blocks that are in use stay
    /// counted until they return.
    pub(super) fn close(&self) -> Bins {
        let state = &mut *self.lock();
        state.owned = state.in_use();
        state.share = Amount::default();
        std::mem::take(&mut state.bins)
    }

    #[inline]
    pub(super) fn lock(&self) -> LockGuard<'_, ShardState> {
        self.state.lock()
    }

    /// Takes a retained block for a request.
    #[inline]
    pub(super) fn take(&self, fit: Fit) -> Option<Block> {
        let state = &mut *self.lock();
        let mut block = state.bins.take(fit)?;
        state.stats.hits += 1;
        state.requested += fit.bytes;
        block.set_requested(fit.bytes);
        Some(block)
    }

    /// Gives a block to another shard, with the share that it uses.
    pub(super) fn cede(&self, fit: Fit) -> Option<Block> {
        let state = &mut *self.lock();
        let block = state.bins.take(fit)?;
        state.share.subtract(block.amount());
        state.owned.subtract(block.amount());
        Some(block)
    }

    /// Hands out a block that another shard ceded, and takes over its share.
    pub(super) fn receive(&self, block: &mut Block, bytes: usize, tick: u64) {
        let mut state = self.lock();
        state.tick = state.tick.max(tick);
        state.share.add(block.amount());
        state.stats.hits += 1;
        state.adopt(block, bytes);
    }

    /// Hands out a new block.
    pub(super) fn miss(&self, block: &mut Block, bytes: usize, refused: Extras) {
        let mut state = self.lock();
        state.stats.misses += 1;
        refused.count_refused(&mut state.stats);
        state.adopt(block, bytes);
    }

    /// Retains a block that was in use. Gives up the block if the share has no room for it.
    #[inline]
    pub(super) fn release(&self, block: Block) -> Result<(), Block> {
        let mut state = self.lock();
        state.requested -= block.requested();
        state.retain(block)
    }

    /// Removes a block that is in use.
    pub(super) fn detach(&self, block: &Block) {
        let mut state = self.lock();
        state.requested -= block.requested();
        state.owned.subtract(block.amount());
    }

    /// Adds to the share and retains a block as the newest one, with a stamp above `tick`. Gives up
    /// the block if there still is no room for it.
    pub(super) fn retain(&self, block: Block, more: Amount, tick: u64) -> Result<(), Block> {
        let mut state = self.lock();
        state.share.add(more);
        state.owned.add(block.amount());
        state.tick = state.tick.max(tick);
        state.retain(block)
    }

    /// Gives up unused share, at most `wanted`.
    pub(super) fn collect(&self, wanted: Amount) -> Amount {
        let mut state = self.lock();
        let given = state.unused().at_most(wanted);
        state.share.subtract(given);
        given
    }

    /// The stamp of the oldest block.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.lock().bins.oldest()
    }

    pub(super) fn tick(&self) -> u64 {
        self.lock().tick
    }

    /// Removes the oldest block, with its part of the share.
    pub(super) fn evict(&self) -> Option<Block> {
        let state = &mut *self.lock();
        let block = state.remove_oldest()?;
        state.stats.evictions += 1;
        Some(block)
    }

    /// Removes blocks that were not used since the last search, up to [`DECAY_BATCH`]. A shard that
    /// retains nothing afterwards gives up its whole share.
    pub(super) fn decay(&self) -> Decayed {
        let state = &mut *self.lock();
        let mut decayed = Decayed::default();
        while state.bins.oldest().is_some_and(|stamp| stamp <= state.mark) {
            if decayed.blocks.len() == DECAY_BATCH {
                decayed.more = true;
                return decayed;
            }
            let Some(block) = state.remove_oldest() else { break };
            state.stats.decays += 1;
            decayed.share.add(block.amount());
            decayed.blocks.push(block);
        }
        state.mark = state.tick;
        decayed.is_empty = state.bins.held().blocks == 0;
        if decayed.is_empty {
            decayed.share.add(std::mem::take(&mut state.share));
        }
        decayed
    }

    /// Changes the counters.
    pub(super) fn count(&self, change: impl FnOnce(&mut BufferStats)) {
        change(&mut self.lock().stats);
    }

    pub(super) fn stats(&self) -> BufferStats {
        let state = self.lock();
        let (held, in_use) = (state.bins.held(), state.in_use());
        BufferStats {
            live: in_use.blocks,
            live_bytes: in_use.bytes,
            waste_bytes: in_use.bytes - state.requested,
            retained: held.blocks,
            retained_bytes: held.bytes,
            ..state.stats
        }
    }
}

/// What a shard gave up because it was idle.
#[derive(Debug, Default)]
pub(super) struct Decayed {
    pub(super) blocks: Vec<Block>,
    pub(super) share: Amount,
    /// Whether there are more idle blocks.
    pub(super) more: bool,
    /// Whether the shard retains nothing, and has no share to retain anything.
    pub(super) is_empty: bool,
}
