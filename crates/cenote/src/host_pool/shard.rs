//! A shard: the part of a pool that one thread uses almost alone.
//!
//! In the steady state a thread takes a block from its own shard and gives it back there: one lock
//! that nobody else wants, on cache lines that nobody else writes. What the pool may retain in all
//! is split into *credit*. A shard spends credit when it retains a block and earns it back when the
//! block is taken, so it needs the pool's ledger only when its working set grows.
//!
//! Buffers refer to their shard for as long as they live, and many outlive the pool. So shards are
//! never freed: one whose pool and buffers are gone waits in [`spare`] for the next pool.

use std::sync::{Arc, Weak};

use super::bins::Bins;
use super::block::Block;
use super::class::Fit;
use super::credit::Credit;
use super::gate::Entry;
use super::memory::Extras;
use super::spare;
use super::stats::BufferStats;
use super::store::Store;
use crate::sync::{Lock, LockGuard};

/// Idle blocks that are taken out at a time: others want the lock.
const DECAY_BATCH: usize = 64;

/// On cache lines of its own, two of them because processors fetch neighbours in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Shard {
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    /// Counts returned blocks. Never behind a stamp in `bins`.
    tick: u64,
    /// The credit of this shard: what `bins` holds is spent, the rest is unused.
    share: Credit,
    /// The blocks of this shard: what `bins` does not hold is lent.
    owned: Credit,
    /// Bytes that the holders of lent blocks asked for.
    asked: usize,
    /// Only what is counted; the rest follows from the above.
    stats: BufferStats,
    /// Taking and putting change what it holds and, but for a few counts, nothing else: before a
    /// lock can be released all that was written must be, so each field costs time.
    bins: Bins,
    /// The tick at the last look for idle blocks.
    mark: u64,
    /// Dead while the pool is being dropped, and none once it has closed this shard.
    store: Option<Weak<Store>>,
    /// Larger blocks are not retained.
    largest: usize,
}

impl State {
    fn new(store: Weak<Store>, largest: usize) -> State {
        State {
            tick: 0,
            share: Credit::default(),
            owned: Credit::default(),
            asked: 0,
            stats: BufferStats::default(),
            bins: Bins::new(),
            mark: 0,
            store: Some(store),
            largest,
        }
    }

    /// Unused credit.
    #[inline]
    fn credit(&self) -> Credit {
        self.share.minus(self.bins.held())
    }

    /// Blocks in use, and their bytes.
    fn lent(&self) -> Credit {
        self.owned.minus(self.bins.held())
    }

    /// Retains a block of this shard; if there is no credit for that, parts with it.
    #[inline]
    fn retain(&mut self, block: Block) -> Result<(), Block> {
        if block.size() > self.largest || !self.credit().covers(block.price()) {
            self.owned.spend(block.price());
            return Err(block);
        }
        self.tick += 1;
        self.bins.put(block, self.tick);
        Ok(())
    }

    /// Gets a block that is lent at once, for a request of `bytes`.
    fn welcome(&mut self, block: &Block, bytes: usize) {
        self.owned.add(block.price());
        self.asked += bytes;
    }

    /// The pool, if it lives.
    fn store(&self) -> Option<Arc<Store>> {
        self.store.as_ref()?.upgrade()
    }

    /// Whether neither the pool nor a buffer will come back. True for one caller only: `close`, or
    /// whoever returns the last buffer after it.
    fn is_deserted(&self) -> bool {
        self.store.is_none() && self.lent().blocks == 0
    }
}

impl Shard {
    /// A shard for a pool: a spare one, or a new one.
    ///
    /// Blocks larger than `largest` are not retained.
    pub(super) fn open(store: Weak<Store>, largest: usize, inside: &Entry) -> &'static Shard {
        let state = State::new(store, largest);
        if let Some(shard) = spare::take(inside) {
            *shard.lock() = state;
            return shard;
        }
        let shard = Box::leak(Box::new(Shard { state: Lock::new(state) }));
        spare::enlist(shard, inside);
        shard
    }

    /// Parts with its pool: returns all blocks. The last buffer to come back makes it a spare.
    pub(super) fn close(&'static self) -> Bins {
        let mut state = self.lock();
        state.store = None;
        state.share = Credit::default();
        state.owned = state.lent();
        let bins = std::mem::replace(&mut state.bins, Bins::new());
        if state.is_deserted() {
            spare::put(self);
        }
        bins
    }

    #[inline]
    fn lock(&self) -> LockGuard<'_, State> {
        self.state.lock()
    }

    /// Takes its lock until [`let_go`](Shard::let_go).
    #[cfg(all(target_os = "linux", not(all(test, loom))))]
    pub(super) fn hold(&self) {
        self.state.hold();
    }

    /// Undoes [`hold`](Shard::hold).
    ///
    /// # Safety
    /// The shard is held, and this is the only call to undo that.
    #[cfg(all(target_os = "linux", not(all(test, loom))))]
    #[allow(unsafe_code, reason = "passes the promise on")]
    pub(super) unsafe fn let_go(&self) {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.state.let_go() };
    }

    /// Takes a block for a request made through this shard.
    #[inline]
    pub(super) fn take(&'static self, fit: Fit) -> Option<Block> {
        let state = &mut *self.lock();
        let mut block = state.bins.take(fit)?;
        state.stats.hits += 1;
        state.asked += fit.bytes;
        block.lend(fit.bytes, self);
        Some(block)
    }

    /// Takes a block for another shard's request, and the credit that it frees with it.
    pub(super) fn cede(&self, fit: Fit) -> Option<Block> {
        let state = &mut *self.lock();
        let block = state.bins.take(fit)?;
        state.share.spend(block.price());
        state.owned.spend(block.price());
        Some(block)
    }

    /// Counts a block that another shard ceded to this one.
    pub(super) fn receive(&'static self, block: &mut Block, bytes: usize) {
        let mut state = self.lock();
        state.share.add(block.price());
        state.stats.hits += 1;
        state.welcome(block, bytes);
        block.lend(bytes, self);
    }

    /// Counts a new block.
    pub(super) fn miss(&'static self, block: &mut Block, bytes: usize, refused: Extras) {
        let mut state = self.lock();
        state.stats.misses += 1;
        state.welcome(block, bytes);
        state.stats.refuse(refused);
        block.lend(bytes, self);
    }

    /// Takes back a block that was lent.
    #[inline]
    pub(super) fn release(&'static self, block: Block) {
        let mut state = self.lock();
        state.asked -= block.asked();
        if let Err(block) = state.retain(block) {
            self.part_with(block, state);
        }
    }

    /// A block that was lent came back, and there is no credit to retain it.
    #[cold]
    fn part_with(&'static self, block: Block, state: LockGuard<'_, State>) {
        let store = state.store();
        if state.is_deserted() {
            spare::put(self);
        }
        // What remains to be done takes long, and needs the lock.
        drop(state);
        match store {
            Some(store) => {
                store.retain(self, block);
            }
            None => drop(block),
        }
    }

    /// A block leaves the pool for good. Returns the pool, if it still lives.
    pub(super) fn part(&'static self, block: &Block) -> Option<Arc<Store>> {
        let mut state = self.lock();
        state.asked -= block.asked();
        state.owned.spend(block.price());
        if state.is_deserted() {
            spare::put(self);
        }
        state.store()
    }

    /// Retains a block with credit from the ledger on top of its own, as the newest of the pool.
    /// Returns the block if that is still not enough.
    pub(super) fn retain(&self, block: Block, credit: Credit, tick: u64) -> Result<(), Block> {
        let mut state = self.lock();
        state.share.add(credit);
        state.owned.add(block.price());
        state.tick = state.tick.max(tick);
        state.retain(block)
    }

    /// Gives up unused credit, at most `wanted`.
    pub(super) fn collect(&self, wanted: Credit) -> Credit {
        let mut state = self.lock();
        let given = state.credit().at_most(wanted);
        state.share.spend(given);
        given
    }

    /// The stamp of its oldest block, and its tick.
    pub(super) fn ages(&self) -> (Option<u64>, u64) {
        let state = self.lock();
        (state.bins.oldest(), state.tick)
    }

    /// Moves its clock forward.
    pub(super) fn catch_up(&self, tick: u64) {
        let mut state = self.lock();
        state.tick = state.tick.max(tick);
    }

    /// Gives up its oldest block, and the credit that it held.
    pub(super) fn evict(&self) -> Option<Block> {
        let state = &mut *self.lock();
        let block = state.bins.take_oldest()?;
        state.share.spend(block.price());
        state.owned.spend(block.price());
        state.stats.evictions += 1;
        Some(block)
    }

    /// Gives up some of the blocks that were not used since the last look, with their credit. If
    /// these were all it gives up the rest of its credit, too, once it is without blocks.
    pub(super) fn decay(&self) -> Decayed {
        let state = &mut *self.lock();
        let mut decayed = Decayed::default();
        while state.bins.oldest().is_some_and(|stamp| stamp <= state.mark) {
            if decayed.blocks.len() == DECAY_BATCH {
                decayed.more = true;
                return decayed;
            }
            let Some(block) = state.bins.take_oldest() else { break };
            state.share.spend(block.price());
            state.owned.spend(block.price());
            state.stats.decays += 1;
            decayed.credit.add(block.price());
            decayed.blocks.push(block);
        }
        state.mark = state.tick;
        decayed.is_empty = state.bins.held().blocks == 0;
        if decayed.is_empty {
            decayed.credit.add(std::mem::take(&mut state.share));
        }
        decayed
    }

    /// All its credit, unused and spent.
    #[cfg(all(test, loom))]
    pub(super) fn credit(&self) -> Credit {
        self.lock().share
    }

    /// Changes its counters.
    pub(super) fn count(&self, change: impl FnOnce(&mut BufferStats)) {
        change(&mut self.lock().stats);
    }

    /// Its part of the pool's statistics.
    pub(super) fn stats(&self) -> BufferStats {
        let state = self.lock();
        let (held, lent) = (state.bins.held(), state.lent());
        BufferStats {
            live: lent.blocks,
            live_bytes: lent.bytes,
            waste_bytes: lent.bytes - state.asked,
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
    pub(super) credit: Credit,
    /// Whether there are more.
    pub(super) more: bool,
    /// Whether the shard retains nothing, and cannot without credit from the ledger.
    pub(super) is_empty: bool,
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::gate;

    use super::super::BufferPool;
    use super::*;

    #[test]
    fn a_shard_is_set_aside_once_however_pool_and_buffers_end() {
        for round in 0..2000 {
            let pool = BufferPool::with_max_retained_bytes(64 * (round % 2));
            let (one, two) = (pool.acquire::<u8>(9).unwrap(), pool.acquire::<u8>(9).unwrap());
            thread::scope(|scope| {
                scope.spawn(move || drop(one));
                scope.spawn(move || drop(pool));
                drop(two.write_fn(|_| 0).detach());
            });
        }
        let (shards, _) = spare::census(&gate::enter());
        for (index, shard) in shards.iter().enumerate() {
            assert!(!shards[..index].iter().any(|other| std::ptr::eq(*other, *shard)));
        }
        // One at a time is in use here, and few by the tests that run beside this one.
        assert!(shards.len() < 1000, "shards are not used again: {}", shards.len());
    }
}
