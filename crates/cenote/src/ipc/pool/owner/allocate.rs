//! Allocating, waiting, and giving back.
//!
//! Most allocations take what was let go of last, without the lock. Others take a slot from the
//! allocator under it. Only a pool that seems full looks further, and says why it failed when
//! nothing helped.

use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result, Shortage};
use crate::intervals::{ALLOC_GROW_RETRY, ALLOC_POLL};
use crate::ipc::pool::owner::free_cache::FreeCache;
use crate::ipc::pool::owner::growth::Grown;
use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::owner::segment;
use crate::ipc::pool::owner::state::{Granted, OwnerState, with_programs};
use crate::ipc::pool::owner::tlsf::allocator::Full;
use crate::ipc::pool::slot_home;
use crate::memory::slot::{SegmentId, Slot};
use crate::tensor::buffer::Buffer;
use crate::tensor::buffer::buffer::BufferSlot;

/// How many retired slots an allocation looks at again.
const SWEEP: usize = 4;

/// How many of them one does that waits.
const SWEEP_WAITING: usize = 1024;

/// Why there is no slot.
#[derive(Debug)]
enum Shortfall {
    /// The pool is full.
    Room(Full),
    /// It could grow, but the system refused.
    Memory(Error),
}

impl Owner {
    /// A slot of just `len` bytes, if there is one that can be had without the lock of the pool. The caller has
    /// seen that this process owns the pool.
    #[inline(always)]
    pub(crate) fn alloc_cached(&self, len: usize) -> Option<Arc<Buffer>> {
        let mut buffer = self.free_cache.take()?;
        while length(&buffer) != len {
            buffer = self.exchange(buffer)?;
        }
        self.count_alloc(slot_of(&buffer).index);
        Some(buffer)
    }

    /// Gives back a spare of another size for the next.
    #[cold]
    fn exchange(&self, buffer: Arc<Buffer>) -> Option<Arc<Buffer>> {
        self.return_cached(buffer);
        self.free_cache.take()
    }

    /// A slot of at least `len` bytes, when none was ready. While the pool is full or cannot grow, `make_room` is asked for
    /// some, which tells whether there was any to make.
    pub(crate) fn alloc(&self, len: usize, mut make_room: impl FnMut() -> bool) -> Result<Granted> {
        loop {
            match self.alloc_locked(len, SWEEP).or_else(|full| self.alloc_hard(len, full)) {
                Ok(granted) => return Ok(granted),
                Err(shortfall) if self.helps(&shortfall, len) && make_room() => {}
                Err(shortfall) => return Err(self.failed(len, shortfall)),
            }
        }
    }

    /// Whether slots that are given back could be of use to whoever lacks this.
    fn helps(&self, shortfall: &Shortfall, len: usize) -> bool {
        let state = self.state();
        match shortfall {
            Shortfall::Room(_) => self.config.fits(len),
            // What the pool has could be given back to the system, too.
            Shortfall::Memory(Error::OutOfMemory { available, .. }) => {
                available.saturating_add(state.allocator.stats().reserved) >= len
            }
            Shortfall::Memory(_) => state.segments.values().any(|segment| segment.map.len() >= len),
        }
    }

    /// Like [`Owner::alloc`], but waits for a slot.
    /// A break, which is no failure, if `go_on` did not want to any more.
    pub(crate) fn alloc_timeout<B>(
        &self,
        len: usize,
        timeout: Duration,
        go_on: impl FnMut() -> ControlFlow<B>,
    ) -> Result<ControlFlow<B, Granted>> {
        let deadline = Instant::now().checked_add(timeout);
        self.flush_free_cache();
        match self.alloc_locked(len, SWEEP).or_else(|full| self.alloc_hard(len, full)) {
            Ok(granted) => Ok(ControlFlow::Continue(granted)),
            Err(shortfall) if !self.config.fits(len) => Err(self.failed(len, shortfall)),
            Err(_) => self.alloc_waiting(len, deadline, go_on),
        }
    }

    fn alloc_waiting<B>(
        &self,
        len: usize,
        deadline: Option<Instant>,
        mut go_on: impl FnMut() -> ControlFlow<B>,
    ) -> Result<ControlFlow<B, Granted>> {
        let _waiting = Waiting::new(self);
        let mut try_all_at = Instant::now() + ALLOC_GROW_RETRY;
        loop {
            let now = Instant::now();
            let over = deadline.is_some_and(|deadline| now >= deadline);
            let found = self.alloc_locked(len, SWEEP_WAITING);
            let found = match found {
                Err(full) if over || now >= try_all_at => {
                    try_all_at = now + ALLOC_GROW_RETRY;
                    self.alloc_hard(len, full)
                }
                found => found.map_err(Shortfall::Room),
            };
            match found {
                Ok(granted) => return Ok(ControlFlow::Continue(granted)),
                Err(shortfall) if over => return Err(self.failed(len, shortfall)),
                Err(_) => {}
            }
            if let ControlFlow::Break(why) = go_on() {
                return Ok(ControlFlow::Break(why));
            }
            let left = deadline.map_or(ALLOC_POLL, |deadline| deadline - now);
            self.wait_for_return(left.min(ALLOC_POLL));
        }
    }

    fn alloc_locked(&self, len: usize, sweep: usize) -> Result<Granted, Full> {
        let mut state = self.swept(sweep);
        let slot = match state.allocator.alloc(len) {
            Ok(slot) => slot,
            // Before a batch is complete only if there is need.
            Err(full) if state.retired.deferred() == 0 => return Err(full),
            Err(_) => {
                state.scan_deferred(self.serials());
                state.allocator.alloc(len)?
            }
        };
        Ok(self.grant(state, slot, len))
    }

    /// Everything that can be done before saying that the pool is full.
    #[cold]
    fn alloc_hard(&self, len: usize, mut full: Full) -> Result<Granted, Shortfall> {
        // What is given back meanwhile goes to the allocator.
        let _waiting = Waiting::new(self);
        for effort in [OwnerState::sweep_all, OwnerState::reap, OwnerState::expel] {
            let mut state = self.state();
            effort(&mut state, self.serials());
            let gone = state.take_unused_segments();
            drop(state);
            drop(gone);
            self.scrub();
            let mut state = self.state();
            match state.allocator.alloc(len) {
                Ok(slot) => return Ok(self.grant(state, slot, len)),
                Err(still) => full = still,
            }
        }
        match full {
            Full::Bytes => self.alloc_growing(len),
            Full::Slots => Err(Shortfall::Room(full)),
        }
    }

    /// Allocates after adding a segment, unless somebody else just has.
    fn alloc_growing(&self, len: usize) -> Result<Granted, Shortfall> {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match self.alloc_locked(len, 0) {
                Err(Full::Bytes) => {}
                done => return done.map_err(Shortfall::Room),
            }
            let refused = match self.add_segment(len, |step| [step.most, step.least]) {
                Ok(Grown::More) => continue,
                Ok(Grown::No) => Shortfall::Room(Full::Bytes),
                Err(error) => Shortfall::Memory(error),
            };
            // Segments without a slot in use may stand in the way of one that fits: in the size of
            // the pool, or in the memory there is. But not one that will do as it is.
            let mut state = self.state();
            match state.allocator.alloc(len) {
                Ok(slot) => return Ok(self.grant(state, slot, len)),
                Err(_) if self.config.fits(len) && self.trim_locked(state) > 0 => {}
                Err(_) => return Err(refused),
            }
        }
    }

    fn grant(&self, mut state: MutexGuard<'_, OwnerState>, slot: Slot, len: usize) -> Granted {
        let granted = state.grant(slot);
        if matches!(granted, Granted::New(..)) {
            self.publish_location(slot);
        }
        let low = state.is_low(len, &self.config);
        drop(state);
        if low {
            self.grow_soon(len);
        }
        granted
    }

    /// Counts a failure, once, and says why and who holds what.
    fn failed(&self, len: usize, shortfall: Shortfall) -> Error {
        let mut state = self.state();
        state.failures += 1;
        let full = match shortfall {
            Shortfall::Room(full) => full,
            Shortfall::Memory(error) => return error,
        };
        let stats = state.allocator.stats();
        let free = self.config.pool_size.saturating_sub(stats.in_use);
        let unreserved = self.config.pool_size.saturating_sub(stats.reserved);
        let why = match full {
            _ if !self.config.fits(len) => Shortage::TooLarge,
            Full::Slots => Shortage::Slots,
            Full::Bytes if free < len => Shortage::Bytes,
            Full::Bytes => {
                let longest = state.allocator.longest_hole().max(unreserved);
                Shortage::Fragmented { free, longest }
            }
        };
        let holders = state.holders();
        drop(state);
        Error::PoolFull {
            pool: self.endpoint.name.clone(),
            asked: len,
            why,
            slots: (stats.slots as usize, self.config.max_slots),
            bytes: (stats.in_use, self.config.pool_size),
            holders: with_programs(holders),
        }
    }
}

/// Waiting.
impl Owner {
    /// Sleeps until a slot is given back here, or for a moment: what others give back is only
    /// seen by looking.
    fn wait_for_return(&self, moment: Duration) {
        let state = self.state();
        drop(self.returned.wait_timeout(state, moment).unwrap_or_else(PoisonError::into_inner));
    }

    /// Wakes somebody who waits, if anybody does.
    pub(crate) fn notify_waiting(&self) {
        // A notification is a system call. Should this look come too early, a waiter looks again
        // by itself in a moment.
        if self.is_waiting() {
            self.returned.notify_one();
        }
    }
}

/// An allocation that waits: what is given back meanwhile goes to the allocator, where it is seen.
struct Waiting<'a>(&'a Owner);

impl<'a> Waiting<'a> {
    fn new(owner: &'a Owner) -> Self {
        let mut state = owner.state();
        state.waiters += 1;
        owner.set_waiting(true);
        let free_cache = owner.free_cache.shut();
        drop(state);
        free_cache.into_iter().for_each(|buffer| owner.return_cached(buffer));
        Waiting(owner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waiters -= 1;
        if state.waiters == 0 {
            self.0.set_waiting(false);
            self.0.open_free_cache(&state);
        }
    }
}

/// Giving back.
impl Owner {
    /// Takes back a spare whose slot nobody else can have, for the next to ask.
    #[inline]
    pub(crate) fn recycle(buffer: Arc<Buffer>) {
        // Either way it is a spare that nobody else has now.
        if let Some(buffer) = FreeCache::put_last(buffer, Self::free_cache_of) {
            Self::return_buffer(buffer);
        }
    }

    /// Where the pool of a spare keeps it at hand. A forked child has none.
    #[inline]
    fn free_cache_of(buffer: &Buffer) -> Option<&FreeCache<Buffer>> {
        let owner = slot_home::allocated_by(buffer.slot_ref()?)?;
        (!owner.is_inherited()).then_some(&owner.free_cache)
    }

    /// Takes back a slot that was published. If nobody else holds it, it is as good as one that was not.
    #[inline]
    pub(crate) fn retire(buffer: Arc<Buffer>) {
        let Some(slot_ref) = buffer.slot_ref() else { return };
        let owner = slot_home::allocated_by(slot_ref).filter(|owner| !owner.is_inherited());
        let Some(owner) = owner else { return };
        let claimed = owner.state().claim_published(slot_ref.slot.index, owner.serials());
        if claimed { Self::recycle(buffer) } else { Self::retire_held(buffer) }
    }

    /// The same of a slot that others held a moment ago: it waits, and the spare with it. That goes there
    /// as it is, for whoever has it next must have it alone; so somebody else has to keep the pool.
    fn retire_held(buffer: Arc<Buffer>) {
        let Some(owner) = buffer.slot_ref().and_then(slot_home::shared_owner) else { return };
        let slot = slot_of(&buffer).index;
        let mut state = owner.state();
        if state.retire_published(slot, owner.serials()) {
            drop(state);
            return Self::recycle(buffer);
        }
        let old = state.keep(slot, Some(buffer));
        drop(state);
        drop(old);
    }

    /// Takes back a slot of this pool that others are about to let go of: it is one of many, so it can wait
    /// until there is a batch of them.
    pub(crate) fn retire_deferred(&self, buffer: Arc<Buffer>) {
        if self.is_inherited() {
            return;
        }
        let mut state = self.state();
        if !state.defers() {
            drop(state);
            return Self::retire(buffer);
        }
        let slot = slot_of(&buffer);
        let old = state.keep(slot.index, Some(buffer));
        if state.defer(slot, self.config.pool_size) {
            state.scan_deferred_into(self.serials(), |buffer| {
                let bytes = buffer.storage().region.start().as_ptr().cast_const();
                self.free_cache.add(buffer, bytes)
            });
        }
        drop(state);
        drop(old);
    }

    /// Takes back a slot, and what a handle of it was made of.
    fn return_buffer(buffer: Arc<Buffer>) {
        // The spare may be all that keeps the pool, and goes into it.
        if let Some(owner) = buffer.slot_ref().and_then(slot_home::shared_owner) {
            owner.return_cached(buffer);
        }
    }

    /// Gives back what is ready the long way, so that its slot counts as free.
    pub(crate) fn flush_free_cache(&self) {
        while let Some(buffer) = self.free_cache.take() {
            self.return_cached(buffer);
        }
    }

    /// As [`Owner::give_back`], for a spare that was ready.
    pub(crate) fn return_cached(&self, buffer: Arc<Buffer>) {
        self.return_slot(slot_of(&buffer).index, Some(buffer), false);
    }

    /// Takes back a slot that no handle of this process has any more. `published` says whether
    /// any descriptor of it was made.
    pub(crate) fn return_slot(&self, slot: u32, buffer: Option<Arc<Buffer>>, published: bool) {
        if self.is_inherited() {
            return;
        }
        let mut state = self.state();
        let buffer = state.keep(slot, buffer);
        state.retire(slot, published, self.serials());
        let (wake, dirty) = (state.waiters > 0, state.is_dirty());
        let gone = state.take_unused_segments();
        drop(state);
        drop((buffer, gone));
        if dirty {
            self.scrub();
        }
        if wake {
            self.returned.notify_one();
        }
    }

    /// The state, after looking again at up to `limit` slots that others held.
    pub(crate) fn swept(&self, limit: usize) -> MutexGuard<'_, OwnerState> {
        let mut state = self.state();
        state.sweep(limit, self.serials());
        let gone = state.take_unused_segments();
        if state.is_dirty() || !gone.is_empty() {
            drop(state);
            drop(gone);
            self.scrub();
            state = self.state();
        }
        state
    }

    /// Frees what others have let go of, although nobody needs room.
    #[cfg(all(feature = "camera", target_pointer_width = "64"))]
    pub(crate) fn sweep_now(&self) {
        if !self.is_inherited() {
            drop(self.swept(usize::MAX));
            self.stop_lingering();
        }
    }

    /// Overwrites what nobody holds any more and then frees it. Whoever comes while another thread
    /// does so waits: what it needs may be among it.
    fn scrub(&self) {
        if !self.config.scrub {
            return;
        }
        let _scrubbing = self.scrubbing.lock().unwrap_or_else(PoisonError::into_inner);
        let dirty = self.state().take_dirty();
        for (slot, map) in &dirty {
            segment::scrub(map.clone(), slot.offset..slot.offset + slot.capacity);
        }
        let mut state = self.state();
        state.scrubbing -= dirty.len();
        dirty.iter().for_each(|(slot, _)| state.allocator.free(slot.index));
    }
}

/// The slot of a buffer that the pool keeps. Every such buffer has one.
#[inline(always)]
fn slot_of(buffer: &Buffer) -> Slot {
    let none = Slot { index: u32::MAX, segment: SegmentId(u32::MAX), offset: 0, capacity: 0 };
    buffer.slot_ref().map_or(none, |slot_ref| slot_ref.slot)
}

/// The length for which the slot of a buffer was last allocated.
#[inline(always)]
fn length(buffer: &Buffer) -> usize {
    buffer.slot_ref().map_or(0, BufferSlot::len)
}
