//! Allocating slots, waiting for them, and returning them.
//!
//! Most allocations take a buffer from the free cache, without the lock. Others take a slot from the allocator under
//! the lock. Only if the pool seems full, an allocation scans more, reaps dead readers and grows the pool; if nothing
//! helps, it fails with the reason.

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

/// How many waiting slots an allocation scans again.
const SWEEP: usize = 4;

/// How many of them an allocation scans that waits.
const SWEEP_OF_WAITING: usize = 1024;

/// Why there is no slot.
#[derive(Debug)]
enum Shortfall {
    /// The pool is full.
    Room(Full),
    /// The pool could grow, but the system refused.
    Memory(Error),
}

impl Owner {
    /// A slot that was last allocated with exactly this length, from the free cache: without the lock of the pool. The
    /// caller has checked that this process owns the pool.
    #[inline(always)]
    pub(crate) fn alloc_cached(&self, len: usize) -> Option<Arc<Buffer>> {
        let mut buffer = self.free_cache.take()?;
        while length(&buffer) != len {
            buffer = self.exchange(buffer)?;
        }
        self.count_alloc(slot_of(&buffer).index);
        Some(buffer)
    }

    /// Returns a buffer of another length to the allocator and takes the next one.
    #[cold]
    fn exchange(&self, buffer: Arc<Buffer>) -> Option<Arc<Buffer>> {
        self.return_cached(buffer);
        self.free_cache.take()
    }

    /// Allocates a slot of at least `len` bytes, after the free cache had none. If the pool is full or cannot grow, calls
    /// `make_room`, and tries again if that returned `true`.
    pub(crate) fn alloc(&self, len: usize, mut make_room: impl FnMut() -> bool) -> Result<Granted> {
        loop {
            match self.alloc_locked(len, SWEEP).or_else(|full| self.alloc_hard(len, full)) {
                Ok(granted) => return Ok(granted),
                Err(shortfall) if self.helps(&shortfall, len) && make_room() => {}
                Err(shortfall) => return Err(self.failed(len, shortfall)),
            }
        }
    }

    /// Whether returned slots could end this shortfall.
    fn helps(&self, shortfall: &Shortfall, len: usize) -> bool {
        let state = self.state();
        match shortfall {
            Shortfall::Room(_) => self.config.fits(len),
            // The pool's memory could be returned to the system, too.
            Shortfall::Memory(Error::OutOfMemory { available, .. }) => {
                available.saturating_add(state.allocator.stats().reserved) >= len
            }
            Shortfall::Memory(_) => state.segments.values().any(|segment| segment.map.len() >= len),
        }
    }

    /// Like [`Owner::alloc`], but waits for a slot. Breaks, without counting a failure, when `go_on` breaks.
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
            let found = self.alloc_locked(len, SWEEP_OF_WAITING);
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
            // An incomplete batch is scanned only if the slots are needed.
            Err(full) if state.retired.deferred() == 0 => return Err(full),
            Err(_) => {
                state.scan_deferred(self.serials());
                state.allocator.alloc(len)?
            }
        };
        Ok(self.grant(state, slot, len))
    }

    /// Tries everything before the pool counts as full.
    #[cold]
    fn alloc_hard(&self, len: usize, mut full: Full) -> Result<Granted, Shortfall> {
        // Slots that are returned meanwhile go to the allocator.
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

    /// Allocates after adding a segment, unless another thread has just added one.
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
            // Segments without a slot in use may stand in the way of a segment that fits: in the size of the pool, or in the
            // memory of the system. They are freed, unless one of them is large enough.
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

    /// Counts a failure and makes its error, with the processes that hold slots.
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
    /// Sleeps until a slot is returned in this process, or for `moment`: leases that readers end are only seen by a scan.
    fn wait_for_return(&self, moment: Duration) {
        let state = self.state();
        drop(self.returned.wait_timeout(state, moment).unwrap_or_else(PoisonError::into_inner));
    }

    /// Wakes a waiting allocation, if there is one.
    pub(crate) fn notify_waiting(&self) {
        // Waking is a system call, so the flag is read first. If the read comes too early, the waiting thread scans again
        // by itself soon.
        if self.is_waiting() {
            self.returned.notify_one();
        }
    }
}

/// A waiting allocation. While it exists, returned slots go to the allocator, where it sees them.
struct Waiting<'a>(&'a Owner);

impl<'a> Waiting<'a> {
    fn new(owner: &'a Owner) -> Self {
        let mut state = owner.state();
        state.waiters += 1;
        owner.set_waiting(true);
        let cached = owner.free_cache.shut();
        drop(state);
        cached.into_iter().for_each(|buffer| owner.return_cached(buffer));
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

/// Returning slots.
impl Owner {
    /// Puts a buffer whose slot no process holds into the free cache.
    #[inline]
    pub(crate) fn recycle(buffer: Arc<Buffer>) {
        // The buffer that comes back is an older one, or this one if the cache is shut. Only this thread has it.
        if let Some(buffer) = FreeCache::put_last(buffer, Self::free_cache_of) {
            Self::return_buffer(buffer);
        }
    }

    /// The free cache of a buffer's pool. `None` in a forked child.
    #[inline]
    fn free_cache_of(buffer: &Buffer) -> Option<&FreeCache<Buffer>> {
        let owner = slot_home::allocated_by(buffer.slot_ref()?)?;
        (!owner.is_inherited()).then_some(&owner.free_cache)
    }

    /// Retires a published slot and its buffer. If no reader holds it, it goes to the free cache like any other.
    #[inline]
    pub(crate) fn retire(buffer: Arc<Buffer>) {
        let Some(slot_ref) = buffer.slot_ref() else { return };
        let owner = slot_home::allocated_by(slot_ref).filter(|owner| !owner.is_inherited());
        let Some(owner) = owner else { return };
        let claimed = owner.state().claim_published(slot_ref.slot.index, owner.serials());
        if claimed { Self::recycle(buffer) } else { Self::retire_held(buffer) }
    }

    /// Retires a slot that a reader held a moment ago: it waits, and its buffer is kept. The buffer is stored without a
    /// handle, because its next user must have it alone. So another reference must keep the pool alive meanwhile.
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

    /// Retires a published slot of this pool that readers are about to release. The scan is deferred until there is a
    /// batch.
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

    /// Returns a buffer and its slot to the allocator.
    fn return_buffer(buffer: Arc<Buffer>) {
        // The buffer may hold the last reference to the pool, and goes into the pool.
        if let Some(owner) = buffer.slot_ref().and_then(slot_home::shared_owner) {
            owner.return_cached(buffer);
        }
    }

    /// Returns all buffers of the free cache to the allocator, so that their slots count as free.
    pub(crate) fn flush_free_cache(&self) {
        while let Some(buffer) = self.free_cache.take() {
            self.return_cached(buffer);
        }
    }

    /// Returns a slot that was in the free cache, with its buffer.
    pub(crate) fn return_cached(&self, buffer: Arc<Buffer>) {
        self.return_slot(slot_of(&buffer).index, Some(buffer), false);
    }

    /// Returns a slot of which this process has no handle any more. `published` says whether a descriptor of it was made.
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

    /// The state, after scanning up to `limit` waiting slots again.
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

    /// Frees the slots that readers have released, although no allocation needs them.
    #[cfg(all(feature = "camera", target_pointer_width = "64"))]
    pub(crate) fn sweep_now(&self) {
        if !self.is_inherited() {
            drop(self.swept(usize::MAX));
            self.stop_lingering();
        }
    }

    /// Overwrites and frees slots that wait for it. If another thread is doing so, waits for it: the slots that the caller
    /// needs may be among them.
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
