//! The store of one pool: serves requests from the free cache or with new memory, within the limits.

use super::amount::Amount;
use super::block::{ALIGN, Block, Extras, Fill, Fit};
use super::free_cache::FreeCache;
use super::process;
use super::raw_buffer::RawBuffer;
use super::settings::{LimitReached, Settings};
use crate::error::{Error, Limit, Result};
use crate::host_pool::stats::BufferStats;
use crate::types::dtype::Element;

/// Blocks of at least this size get the [`Settings::extras`].
const LARGE: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Store {
    cache: &'static FreeCache,
    settings: Settings,
    /// No other pool of the process has this number.
    number: u64,
}

impl Store {
    pub(crate) fn new(cap: Amount, settings: Settings) -> Store {
        let (cache, number) = process::open_cache(cap, &settings);
        Store { cache, settings, number }
    }

    /// A block of at least `bytes` bytes, filled as requested.
    #[inline]
    pub(crate) fn acquire(&self, bytes: usize, fill: Fill) -> Result<RawBuffer> {
        if bytes == 0 {
            return Ok(RawBuffer::EMPTY);
        }
        self.acquire_from(process::thread_shard(), bytes, fill)
    }

    #[inline]
    pub(super) fn acquire_from(&self, shard: usize, bytes: usize, fill: Fill) -> Result<RawBuffer> {
        let fit = Fit::new(bytes).ok_or_else(|| too_large(bytes))?;
        let block = match self.cache.take(shard, fit) {
            Some(block) => block,
            None => self.miss(shard, fit)?,
        };
        let mut buffer = RawBuffer::new(block);
        if fill != Fill::Uninit {
            let skipped = buffer.prepare(fill) as u64;
            if fill == Fill::Zero {
                self.cache.count_zeros_skipped(shard, skipped);
            }
        }
        Ok(buffer)
    }

    /// Serves a request for which the shard of the thread has no block.
    #[cold]
    fn miss(&self, shard: usize, fit: Fit) -> Result<Block> {
        if let Some(block) = self.cache.take_from_others(shard, fit) {
            return Ok(block);
        }
        let (mut block, refused) = self.grow(fit)?;
        self.cache.hand_out(shard, &mut block, fit.bytes, refused);
        Ok(block)
    }

    /// A new block, and the extras that it did not get.
    fn grow(&self, fit: Fit) -> Result<(Block, Extras)> {
        let size = Block::size_for(fit);
        self.admit(size)?;
        let grown = self.allocate(fit).or_else(|error| match error {
            // Freeing the retained blocks would not be enough either.
            Error::OutOfMemory { available, .. }
                if available.saturating_add(self.stats().retained_bytes) < size =>
            {
                Err(error)
            }
            _ => {
                self.cache.trim(0);
                self.allocate(fit)
            }
        });
        grown.inspect(|_| self.cache.note_peak()).inspect_err(|_| self.cache.count_freed(size))
    }

    fn allocate(&self, fit: Fit) -> Result<(Block, Extras)> {
        let large = Block::size_for(fit) >= LARGE;
        Block::new(fit, if large { self.settings.extras } else { Extras::default() })
    }

    /// Counts `size` more bytes as allocated. At the hard limit it frees retained blocks, then calls
    /// the pool's `on_limit`, and fails if that returns false.
    fn admit(&self, size: usize) -> Result<()> {
        let limit = self.settings.limit;
        while let Err(free) = self.cache.admit(size, limit) {
            let short = size - free;
            // Evicts only if that is enough.
            if short <= self.stats().retained_bytes {
                let evicted = self.cache.evict(short);
                if !evicted.is_empty() {
                    self.cache.free(evicted);
                    continue;
                }
            }
            let reached = LimitReached { asked: size, live: self.stats().live_bytes, limit };
            let on_limit = self.settings.on_limit.as_ref().filter(|_| size <= limit);
            if !on_limit.is_some_and(|on_limit| on_limit(reached)) {
                let (asked, available) = (size, free);
                return Err(Error::OutOfMemory { asked, available, limit: Limit::Pool });
            }
        }
        Ok(())
    }

    /// Takes over the memory of a vector, within the limits. Returns the bytes that it can serve, 0
    /// if it was freed.
    pub(crate) fn give<T: Element>(&self, vec: Vec<T>) -> usize {
        let size = vec.capacity() * size_of::<T>();
        if size < ALIGN {
            return 0;
        }
        // Checked first: a vector that is not retained need not be reallocated.
        let block = if self.may_retain(size) { Block::from_vec(vec) } else { None };
        let admitted =
            block.filter(|block| self.cache.admit(block.size(), self.settings.limit).is_ok());
        match admitted {
            Some(block) => self.retain_vec(block),
            None => {
                self.cache.count(process::thread_shard(), |stats| stats.rejects += 1);
                0
            }
        }
    }

    fn retain_vec(&self, block: Block) -> usize {
        self.cache.note_peak();
        let (shard, size, capacity) = (process::thread_shard(), block.size(), block.capacity());
        if !self.cache.retain(shard, block) {
            return 0;
        }
        if size >= LARGE {
            self.cache.count(shard, |stats| self.settings.extras.count_refused(stats));
        }
        capacity
    }

    /// Whether the pool may retain a block of this size at all.
    fn may_retain(&self, size: usize) -> bool {
        self.cache.cap().covers(Amount { bytes: size, blocks: 1 })
            && size <= self.settings.largest_retained.min(self.settings.limit)
    }

    /// Allocates `count` blocks for requests of `bytes` and retains them, as far as cap and limit
    /// have room without an eviction. Returns how many.
    pub(crate) fn reserve(&self, bytes: usize, count: usize) -> Result<usize> {
        let fit = Fit::new(bytes).ok_or_else(|| too_large(bytes))?;
        for made in 0..count {
            match self.reserve_one(fit) {
                Ok(true) => {}
                Ok(false) => return Ok(made),
                Err(error) => return if made == 0 { Err(error) } else { Ok(made) },
            }
        }
        Ok(count)
    }

    fn reserve_one(&self, fit: Fit) -> Result<bool> {
        let size = Block::size_for(fit);
        if !self.has_room(size) || self.cache.admit(size, self.settings.limit).is_err() {
            return Ok(false);
        }
        let (block, refused) = self.allocate(fit).inspect_err(|_| self.cache.count_freed(size))?;
        self.cache.note_peak();
        let shard = process::thread_shard();
        self.cache.count(shard, |stats| refused.count_refused(stats));
        // False if another thread lowered the cap meanwhile.
        Ok(self.cache.retain(shard, block))
    }

    fn has_room(&self, size: usize) -> bool {
        let (cap, stats) = (self.cache.cap(), self.stats());
        self.may_retain(size)
            && size <= self.settings.limit.saturating_sub(self.cache.allocated())
            && size <= cap.bytes.saturating_sub(stats.retained_bytes)
            && stats.retained < cap.blocks
    }

    /// Frees least recently used blocks until at most `bytes` bytes are retained.
    pub(crate) fn trim(&self, bytes: usize) {
        self.cache.trim(bytes);
    }

    /// No other pool of the process has this number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The most bytes that may be retained.
    pub(crate) fn cap(&self) -> usize {
        self.cache.cap().bytes
    }

    /// Changes the cap. A lower cap evicts at once.
    pub(crate) fn set_cap(&self, bytes: usize) {
        self.cache.set_cap(bytes);
    }

    pub(crate) fn stats(&self) -> BufferStats {
        self.cache.stats()
    }

    #[cfg(test)]
    pub(super) fn cache(&self) -> &'static FreeCache {
        self.cache
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        process::unwatch(self.cache);
        self.cache.close();
    }
}

pub(crate) fn too_large(asked: usize) -> Error {
    Error::OutOfMemory { asked, available: 0, limit: Limit::AddressSpace }
}
