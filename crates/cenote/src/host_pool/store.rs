//! The store: the shards of one pool, and the ledger that keeps their sum below the cap.
//!
//! The cap on what is retained is split into credit, and every bit of it is in exactly one place:
//! free in the ledger, unused in a shard, or spent on a block that the shard retains. It changes
//! places under the lock of that shard, and between shards only under the lock of the ledger. So the
//! cap holds at every moment, although no counter is shared between threads.
//!
//! Locks are taken in the order gate, ledger, shard. Memory is mapped and freed under none.

use std::sync::{Arc, OnceLock, PoisonError};

use super::block::{Block, Fill};
use super::class::Fit;
use super::credit::Credit;
use super::decay;
use super::gate;
use super::ledger::{Ledger, Open};
use super::memory::{ALIGN, Extras};
use super::raw::RawBuffer;
use super::seat::{self, SEATS};
use super::settings::{Settings, Shortage};
use super::shard::Shard;
use super::stats::BufferStats;
use crate::error::{Error, Limit, Result};
use crate::sync::{AtomicUsize, Mutex, Ordering::Relaxed, yield_now};
use crate::types::dtype::Element;

/// From this size on a block gets what [`Settings::extras`] asks for.
const LARGE: usize = 4 << 20;

/// From this many bytes on that go to the allocator at once it is asked to pass them on.
const KEPT_BY_HEAP: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Store {
    /// One for each seat, made when a thread on that seat first uses the pool.
    shards: [OnceLock<&'static Shard>; SEATS],
    settings: Settings,
    ledger: Mutex<Ledger>,
    /// Bytes in use and retained. Changes only when memory comes from the system or goes back.
    allocated: AtomicUsize,
    peak: AtomicUsize,
}

impl Store {
    pub(super) fn new(cap: Credit, settings: Settings) -> Arc<Store> {
        gate::install();
        Arc::new(Store {
            shards: [const { OnceLock::new() }; SEATS],
            settings,
            ledger: Ledger::new(cap),
            allocated: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        })
    }

    /// A block for `bytes` bytes, filled as asked.
    #[inline]
    pub(super) fn acquire(self: &Arc<Self>, bytes: usize, fill: Fill) -> Result<RawBuffer> {
        if bytes == 0 {
            return Ok(RawBuffer::EMPTY);
        }
        self.acquire_from(self.shard(), bytes, fill)
    }

    #[inline]
    pub(super) fn acquire_from(
        &self,
        shard: &'static Shard,
        bytes: usize,
        fill: Fill,
    ) -> Result<RawBuffer> {
        let fit = Fit::new(bytes).ok_or_else(|| too_large(bytes))?;
        let block = match shard.take(fit) {
            Some(block) => block,
            None => self.miss(shard, fit)?,
        };
        let mut buffer = RawBuffer::new(block);
        if fill != Fill::Uninit {
            let skipped = buffer.prepare(fill) as u64;
            if fill == Fill::Zero {
                shard.count(|stats| stats.zero_bytes_skipped += skipped);
            }
        }
        Ok(buffer)
    }

    /// The shard of this thread.
    #[inline]
    fn shard(self: &Arc<Self>) -> &'static Shard {
        self.shard_at(seat::number())
    }

    #[inline]
    pub(super) fn shard_at(self: &Arc<Self>, seat: usize) -> &'static Shard {
        match self.shards[seat].get() {
            Some(shard) => shard,
            None => self.open_shard(seat),
        }
    }

    #[cold]
    fn open_shard(self: &Arc<Self>, seat: usize) -> &'static Shard {
        let inside = gate::enter();
        self.shards[seat].get_or_init(|| {
            Shard::open(Arc::downgrade(self), self.settings.largest_retained, &inside)
        })
    }

    fn shards(&self) -> impl Iterator<Item = &'static Shard> {
        self.shards.iter().filter_map(|shard| shard.get().copied())
    }

    fn ledger(&self) -> Open<'_> {
        Open::new(&self.ledger)
    }

    /// Serves a request that its own shard could not.
    #[cold]
    fn miss(&self, shard: &'static Shard, fit: Fit) -> Result<Block> {
        if let Some(block) = self.take_from_others(shard, fit) {
            return Ok(block);
        }
        let (mut block, refused) = self.grow(fit)?;
        shard.miss(&mut block, fit.bytes, refused);
        Ok(block)
    }

    fn take_from_others(&self, shard: &'static Shard, fit: Fit) -> Option<Block> {
        // While the block is between two shards its credit is in neither; the lock hides that.
        let _ledger = self.ledger();
        shard.catch_up(self.latest());
        let mut block = self.shards().find_map(|other| other.cede(fit))?;
        shard.receive(&mut block, fit.bytes);
        Some(block)
    }

    /// New memory, and what it did not get of what the settings ask for.
    fn grow(&self, fit: Fit) -> Result<(Block, Extras)> {
        let size = Block::size_for(fit);
        self.admit(size)?;
        let grown = self.allocate(fit).or_else(|error| {
            // What cannot be had even without the retained blocks is no reason to free them.
            let retained = self.stats().retained_bytes;
            match error {
                Error::OutOfMemory { available, .. }
                    if available.saturating_add(retained) < size =>
                {
                    Err(error)
                }
                _ => {
                    self.trim(0);
                    self.allocate(fit)
                }
            }
        });
        grown.inspect(|_| self.note_peak()).inspect_err(|_| self.forget(size))
    }

    fn allocate(&self, fit: Fit) -> Result<(Block, Extras)> {
        let large = Block::size_for(fit) >= LARGE;
        Block::new(fit, if large { self.settings.extras } else { Extras::default() })
    }

    /// Counts `size` more bytes as allocated, if the hard limit allows it.
    fn admit(&self, size: usize) -> Result<()> {
        let limit = self.settings.limit;
        while let Err(free) = self.try_admit(size) {
            let short = size - free;
            // Freeing what would not be enough helps nobody.
            if short <= self.stats().retained_bytes {
                let leaving = self.evict(short);
                if !leaving.is_empty() {
                    self.free(leaving);
                    continue;
                }
            }
            let shortage = Shortage { asked: size, live: self.stats().live_bytes, limit };
            let possible = size <= limit;
            if !(possible && self.settings.on_limit.as_ref().is_some_and(|ask| ask(shortage))) {
                return Err(Error::OutOfMemory {
                    asked: size,
                    available: free,
                    limit: Limit::Pool,
                });
            }
        }
        Ok(())
    }

    /// Returns what is left below the limit if that is not enough.
    fn try_admit(&self, size: usize) -> Result<(), usize> {
        let limit = self.settings.limit;
        let admitted = self.allocated.fetch_update(Relaxed, Relaxed, |allocated| {
            allocated.checked_add(size).filter(|&sum| sum <= limit)
        });
        admitted.map(drop).map_err(|allocated| limit.saturating_sub(allocated))
    }

    /// Notes that memory which was admitted could be had.
    fn note_peak(&self) {
        self.peak.fetch_max(self.allocated.load(Relaxed), Relaxed);
    }

    /// Retains a block for which its shard has no credit, or frees it.
    #[cold]
    pub(super) fn retain(self: &Arc<Self>, shard: &Shard, block: Block) -> bool {
        let mut leaving = Vec::new();
        let retained = self.try_retain(shard, block, &mut leaving);
        let is_retained = retained.is_ok();
        if let Err(block) = retained {
            shard.count(|stats| stats.rejects += 1);
            leaving.push(block);
        }
        self.free(leaving);
        is_retained
    }

    fn try_retain(
        self: &Arc<Self>,
        shard: &Shard,
        block: Block,
        leaving: &mut Vec<Block>,
    ) -> Result<(), Block> {
        let mut ledger = self.ledger();
        let price = block.price();
        if !ledger.cap.covers(price) || block.size() > self.settings.largest_retained {
            return Err(block);
        }
        self.watch(&mut ledger);
        let mut credit = shard.collect(price);
        let missing = price.less(credit);
        credit.add(self.gather(&mut ledger, missing, leaving));
        shard.retain(block, credit, self.latest())
    }

    /// Gathers credit: free, then unused, then that of the least recently used blocks.
    ///
    /// The cap must cover what is needed. Then this ends, because credit is never lost; it may
    /// only slip from one place to another while we look.
    fn gather(&self, ledger: &mut Ledger, need: Credit, leaving: &mut Vec<Block>) -> Credit {
        let mut hand = ledger.draw(need);
        loop {
            for shard in self.shards() {
                hand.add(shard.collect(need.less(hand)));
            }
            if hand.covers(need) {
                return hand;
            }
            match self.evict_oldest() {
                Some(block) => {
                    hand.add(block.price());
                    leaving.push(block);
                }
                None => yield_now(),
            }
        }
    }

    /// Takes out the least recently used block of all shards. Its credit is the caller's.
    fn evict_oldest(&self) -> Option<Block> {
        let oldest = |shard: &'static Shard| Some((shard.ages().0?, shard));
        let (_, shard) = self.shards().filter_map(oldest).min_by_key(|&(stamp, _)| stamp)?;
        shard.evict()
    }

    /// The latest tick of all shards. Whoever comes here moves its own clock up to it, so that
    /// stamps can be compared.
    fn latest(&self) -> u64 {
        self.shards().map(|shard| shard.ages().1).max().unwrap_or(0)
    }

    /// Sees to it that somebody looks for idle blocks. Every credit that shards have was handed out
    /// after this.
    fn watch(self: &Arc<Self>, ledger: &mut Open<'_>) {
        if let Some(idle) = self.settings.idle
            && !ledger.watched
        {
            ledger.watched = decay::put(self, idle, &ledger.inside);
        }
    }

    /// Frees the blocks that nobody used since the last look. Returns whether to look again: if not,
    /// nothing is retained, and nothing will be before the pool asks to be watched again.
    pub(super) fn look(&self) -> bool {
        let mut leaving = Vec::new();
        let mut ledger = self.ledger();
        let mut retains = false;
        for shard in self.shards() {
            let mut more = true;
            while more {
                let decayed = shard.decay();
                ledger.free.add(decayed.credit);
                leaving.extend(decayed.blocks);
                more = decayed.more;
                retains |= !more && !decayed.is_empty;
            }
        }
        ledger.watched = retains;
        drop(ledger);
        self.give_back(leaving);
        retains
    }

    /// Frees least recently used blocks until at most `bytes` bytes are retained.
    pub(super) fn trim(&self, bytes: usize) {
        self.give_back(self.evict(self.stats().retained_bytes.saturating_sub(bytes)));
    }

    /// Takes out least recently used blocks of at least `bytes` bytes together, if there are.
    fn evict(&self, bytes: usize) -> Vec<Block> {
        let mut leaving = Vec::new();
        let mut sum = 0;
        let mut ledger = self.ledger();
        while sum < bytes {
            let Some(block) = self.evict_oldest() else { break };
            ledger.free.add(block.price());
            sum += block.size();
            leaving.push(block);
        }
        leaving
    }

    /// Frees blocks, and sees to it that the allocator does not keep what the pool does not.
    fn give_back(&self, blocks: Vec<Block>) {
        let on_heap: usize =
            blocks.iter().filter(|block| block.is_on_heap()).map(Block::size).sum();
        self.free(blocks);
        if on_heap >= KEPT_BY_HEAP {
            #[cfg(target_os = "linux")]
            crate::sys::malloc::trim();
        }
    }

    /// Frees blocks. No lock may be held: unmapping takes long.
    fn free(&self, blocks: Vec<Block>) {
        for block in blocks {
            let size = block.size();
            drop(block);
            self.forget(size);
        }
    }

    /// `size` bytes are no longer the pool's.
    pub(super) fn forget(&self, size: usize) {
        self.allocated.fetch_sub(size, Relaxed);
    }

    /// Takes in the memory of a vector, within the limits. Returns the bytes that it can serve.
    pub(super) fn give<T: Element>(self: &Arc<Self>, vec: Vec<T>) -> usize {
        let size = vec.capacity() * size_of::<T>();
        if size < ALIGN {
            return 0;
        }
        // Looked at first: what is not retained need not be reallocated.
        let block = if self.may_retain(size) { Block::from_vec(vec) } else { None };
        match block.filter(|block| self.try_admit(block.size()).is_ok()) {
            Some(block) => self.take_in(block),
            None => {
                self.shard().count(|stats| stats.rejects += 1);
                0
            }
        }
    }

    fn take_in(self: &Arc<Self>, block: Block) -> usize {
        self.note_peak();
        let (shard, size, capacity) = (self.shard(), block.size(), block.capacity());
        if !self.retain(shard, block) {
            return 0;
        }
        if size >= LARGE {
            shard.count(|stats| stats.refuse(self.settings.extras));
        }
        capacity
    }

    /// Whether a block of this size is not too large for the pool.
    fn may_retain(&self, size: usize) -> bool {
        self.cap().covers(Credit { bytes: size, blocks: 1 })
            && size <= self.settings.largest_retained.min(self.settings.limit)
    }

    /// Makes `count` new blocks for requests of `bytes` and retains them, as far as cap and limit
    /// allow without evicting anything. Returns how many.
    pub(super) fn reserve(self: &Arc<Self>, bytes: usize, count: usize) -> Result<usize> {
        let fit = Fit::new(bytes).ok_or_else(|| too_large(bytes))?;
        let shard = self.shard();
        for made in 0..count {
            let size = Block::size_for(fit);
            if !self.has_room(size) || self.try_admit(size).is_err() {
                return Ok(made);
            }
            match self.allocate(fit) {
                Ok((block, refused)) => {
                    self.note_peak();
                    shard.count(|stats| stats.refuse(refused));
                    if !self.retain(shard, block) {
                        // The cap was lowered meanwhile.
                        return Ok(made);
                    }
                }
                Err(error) => {
                    self.forget(size);
                    return if made == 0 { Err(error) } else { Ok(made) };
                }
            }
        }
        Ok(count)
    }

    fn has_room(&self, size: usize) -> bool {
        let cap = self.cap();
        let stats = self.stats();
        let allocated = self.allocated.load(Relaxed);
        self.may_retain(size)
            && size <= self.settings.limit.saturating_sub(allocated)
            && size <= cap.bytes.saturating_sub(stats.retained_bytes)
            && stats.retained < cap.blocks
    }

    pub(super) fn cap(&self) -> Credit {
        self.ledger().cap
    }

    /// Changes the cap in bytes; lowering it evicts at once.
    pub(super) fn set_cap(&self, bytes: usize) {
        let mut leaving = Vec::new();
        let mut ledger = self.ledger();
        let old = std::mem::replace(&mut ledger.cap.bytes, bytes);
        ledger.free.bytes += bytes.saturating_sub(old);
        let surplus = Credit { bytes: old.saturating_sub(bytes), blocks: 0 };
        let gathered = self.gather(&mut ledger, surplus, &mut leaving);
        ledger.free.add(gathered.less(surplus));
        drop(ledger);
        self.give_back(leaving);
    }

    pub(super) fn stats(&self) -> BufferStats {
        let mut sum = BufferStats::default();
        self.shards().for_each(|shard| sum.add(&shard.stats()));
        sum.peak_bytes = self.peak.load(Relaxed);
        sum
    }
}

#[cfg(all(test, loom))]
impl Store {
    /// All credit there is: free, unused and spent.
    pub(super) fn all_credit(&self) -> Credit {
        let mut sum = self.ledger().free;
        self.shards().for_each(|shard| sum.add(shard.credit()));
        sum
    }

    pub(super) fn allocated(&self) -> usize {
        self.allocated.load(Relaxed)
    }

    /// The credit that shards have.
    pub(super) fn handed_out(&self) -> Credit {
        let mut sum = Credit::default();
        self.shards().for_each(|shard| sum.add(shard.credit()));
        sum
    }

    pub(super) fn is_watched(&self) -> bool {
        self.ledger().watched
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.ledger.get_mut().unwrap_or_else(PoisonError::into_inner).watched {
            decay::leave(self);
        }
        for shard in self.shards() {
            drop(shard.close());
        }
    }
}

pub(super) fn too_large(asked: usize) -> Error {
    Error::OutOfMemory { asked, available: 0, limit: Limit::AddressSpace }
}
