//! A pool, in the process that owns it.
//!
//! Everything that decides who has which bytes is private memory behind one lock, which is held
//! for nanoseconds: allocating is taking a slot from the allocator, dropping is giving it back.
//! What other processes can see is the header (a serial for each slot) and the segments, both
//! read-only to them; what they can write is their own row. See `lease.rs` for the protocol.
//!
//! The pool keeps one spare of type `S` for each slot: whatever the layer above needs to make a
//! handle of a slot, so that it need not be allocated each time.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::error::{Error, Holder, Result};
use crate::memory::select::NotGranted;
use crate::os::fork;
use crate::pool::allocator::{Full, SegmentId, Slot};
use crate::pool::config::TensorPoolConfig;
use crate::pool::host::Host;
use crate::pool::hot::Hot;
use crate::pool::lease::{Leases, Refused, Shipped};
use crate::pool::place::Entry;
use crate::pool::segment::Segment;
use crate::pool::serial;
use crate::pool::serve::Server;
use crate::pool::service::Waker;
use crate::pool::state::{Granted, Made, State};
use crate::pool::stats::PoolStats;
use crate::pool::wire::{MAX_SEGMENTS, header};
use crate::region::{Map, Words};
use crate::sync::{AtomicU64, Ordering};

/// How many retired slots an allocation looks at again.
const SWEEP: usize = 4;

/// How often a waiting allocation looks again by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What a pool keeps for a slot.
pub(crate) trait Spared: Send + 'static {
    /// The slot it is for.
    fn slot(&self) -> Slot;
}

/// A pool that this process owns.
#[derive(Debug)]
pub(crate) struct Owner<S> {
    pub(crate) entry: Entry,
    pub(crate) config: TensorPoolConfig,
    pub(crate) max_slots: u32,
    /// The fork epoch it was made in.
    epoch: u64,
    /// A line of flags, then the serials.
    header: Words,
    pub(crate) header_fd: Arc<OwnedFd>,
    /// Whoever shares the socket.
    pub(super) host: OnceLock<Weak<dyn Host>>,
    /// The row of this process: leases that it takes on its own slots by descriptor.
    own_row: Arc<[AtomicU64]>,
    /// The serial under which each slot was last published. What never was cannot be leased here,
    /// where it may be under `&mut`.
    published: Box<[AtomicU64]>,
    state: Mutex<State<S>>,
    /// A spare whose slot is still allocated, though nobody has it: it was let go of last, and
    /// never published. Whoever next asks for as many bytes has it without taking the lock.
    hot: Hot<S>,
    allocations: AtomicU64,
    /// Bytes that were copied into the pool.
    copied: AtomicU64,
    closed: AtomicBool,
    /// The size for which the service thread is to reserve another segment; 0 if it is not.
    wanted: AtomicUsize,
    /// A slot was given back while somebody waits.
    returned: Condvar,
    /// Held while a segment is made, so that two threads do not both make one.
    growing: Mutex<()>,
}

impl<S: Spared> Owner<S> {
    pub(super) fn new(entry: Entry, config: TensorPoolConfig, max_slots: u32) -> Result<Self> {
        let error = |source| Error::os("reserving the header of a pool", source);
        let (words, fd) =
            Words::create("cenote-header", header::words(max_slots)).map_err(error)?;
        crate::os::memfd::forbid_writing(&fd).map_err(error)?;
        for word in &words.get()[header::SERIALS..] {
            word.store(serial::FIRST, Ordering::Relaxed);
        }
        let own_row: Arc<[AtomicU64]> = (0..max_slots).map(|_| AtomicU64::new(0)).collect();
        let state = State::new(&config, max_slots, own_row.clone());
        Ok(Owner {
            entry,
            config,
            max_slots,
            epoch: fork::epoch(),
            header: words,
            header_fd: fd,
            host: OnceLock::new(),
            own_row,
            published: (0..max_slots).map(|_| AtomicU64::new(0)).collect(),
            state: Mutex::new(state),
            hot: Hot::new(),
            allocations: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            wanted: AtomicUsize::new(0),
            returned: Condvar::new(),
            growing: Mutex::new(()),
        })
    }

    /// Whether this process is a forked child of the owner, which owns nothing.
    pub(crate) fn inherited(&self) -> bool {
        self.epoch != fork::epoch()
    }

    pub(crate) fn check_process(&self) -> Result<()> {
        if self.inherited() { Err(Error::Forked { pool: self.entry.name.clone() }) } else { Ok(()) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State<S>> {
        // No code under this lock panics between two halves of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn serials(&self) -> &[AtomicU64] {
        &self.header.get()[header::SERIALS..]
    }

    /// Shows others where a slot is that was moved. Nobody has a descriptor of it yet.
    fn show_place(&self, slot: Slot) {
        let at = header::places(self.max_slots) + header::WORDS_PER_PLACE * slot.index as usize;
        let place = [u64::from(slot.segment.0), slot.offset as u64, slot.capacity as u64];
        for (word, value) in self.header.get()[at..].iter().zip(place) {
            // Relaxed: whatever carries the first descriptor of the slot carries this along.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Notes that a descriptor of the slot's present content was made, and gives its serial.
    pub(crate) fn publish(&self, slot: u32) -> u64 {
        let serial = self.serial(slot);
        if let Some(published) = self.published.get(slot as usize) {
            published.store(serial, Ordering::Relaxed);
        }
        serial
    }

    /// The serial of a slot that is in use.
    pub(crate) fn serial(&self, slot: u32) -> u64 {
        self.serials().get(slot as usize).map_or(0, |serial| serial.load(Ordering::Relaxed))
    }
}

/// Allocating and giving back.
impl<S: Spared> Owner<S> {
    /// A slot of at least `len` bytes.
    #[inline]
    pub(crate) fn alloc(&self, len: usize) -> Result<Granted<S>> {
        self.check_process()?;
        if let Some(spare) = self.hot.take() {
            let slot = spare.slot();
            if self.suits(slot, len) {
                self.allocations.fetch_add(1, Ordering::Relaxed);
                return Ok(Granted { slot, made: Made::Again(spare) });
            }
            self.give_back(slot.index, Some(spare), false);
        }
        let granted = self.alloc_locked(len)?;
        self.allocations.fetch_add(1, Ordering::Relaxed);
        Ok(granted)
    }

    /// Whether a slot has the bytes asked for, and not so many more that they would be wasted.
    fn suits(&self, slot: Slot, len: usize) -> bool {
        let mask = self.config.slot_alignment - 1; // a power of two
        let wanted = len.saturating_add(mask) & !mask;
        (wanted..=wanted.saturating_add(wanted / 8)).contains(&slot.capacity)
    }

    fn alloc_locked(&self, len: usize) -> Result<Granted<S>> {
        let mut state = self.state();
        state.sweep(SWEEP, self.serials());
        match state.allocator.alloc(len) {
            Ok(slot) => Ok(self.grant(state, slot, len)),
            Err(full) => {
                drop(state);
                self.alloc_hard(len, full)
            }
        }
    }

    fn grant(&self, mut state: MutexGuard<'_, State<S>>, slot: Slot, len: usize) -> Granted<S> {
        let granted = state.grant(slot);
        if matches!(granted.made, Made::New(_)) {
            self.show_place(slot);
        }
        let low = state.is_low(len, self.config.pool_size);
        drop(state);
        if low {
            self.grow_soon(len);
        }
        granted
    }

    /// Has the service thread reserve another segment, if it is not about to.
    #[cold]
    fn grow_soon(&self, len: usize) {
        if self.wanted.swap(len, Ordering::Relaxed) == 0 {
            let waker = self.state().server.as_ref().map(|server| server.waker.clone());
            waker.iter().for_each(Waker::wake);
        }
    }

    /// Reserves the segment that [`Owner::grow_soon`] asked for. Should that fail, the next
    /// allocation that needs it says why.
    pub(super) fn grow_ahead(&self) {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let len = self.wanted.load(Ordering::Relaxed);
        if len > 0 && self.state().is_low(len, self.config.pool_size) {
            let _ = self.grow(len);
        }
        self.wanted.store(0, Ordering::Relaxed);
    }

    /// Takes back a spare whose slot was never published, for the next to ask.
    #[inline]
    pub(crate) fn offer(&self, spare: S) {
        if self.inherited() || self.is_waited_for() || self.config.scrub {
            return self.give_back(spare.slot().index, Some(spare), false);
        }
        let old = self.hot.swap(spare);
        // A spare leads back here: after closing, keeping it would keep the pool for ever. If
        // this swap came after that of `close`, it acquired the flag with it; else that took ours.
        let ours = if self.closed.load(Ordering::Relaxed) { self.hot.take() } else { None };
        for spare in [old, ours].into_iter().flatten() {
            self.give_back(spare.slot().index, Some(spare), false);
        }
    }

    /// Gives back what is hot the long way, so that its slot counts as free.
    fn cool(&self) {
        if let Some(spare) = self.hot.take() {
            self.give_back(spare.slot().index, Some(spare), false);
        }
    }

    /// Everything that can be done before saying that the pool is full.
    #[cold]
    fn alloc_hard(&self, len: usize, mut full: Full) -> Result<Granted<S>> {
        self.cool();
        let mut state = self.state();
        for effort in [State::sweep_all, State::reap, State::expel] {
            effort(&mut state, self.serials());
            match state.allocator.alloc(len) {
                Ok(slot) => return Ok(self.grant(state, slot, len)),
                Err(still) => full = still,
            }
        }
        drop(state);
        match full {
            Full::Bytes => self.alloc_growing(len),
            Full::Slots => Err(self.full(len)),
        }
    }

    /// Allocates after adding a segment, unless somebody else just has.
    fn alloc_growing(&self, len: usize) -> Result<Granted<S>> {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut state = self.state();
            match state.allocator.alloc(len) {
                Ok(slot) => return Ok(self.grant(state, slot, len)),
                Err(Full::Slots) => {
                    drop(state);
                    return Err(self.full(len));
                }
                Err(Full::Bytes) => drop(state),
            }
            if !self.grow(len)? {
                return Err(self.full(len));
            }
        }
    }

    /// Adds a segment that has room for `len` bytes; false if the pool has reached its size. The
    /// caller holds `growing`. Memory is reserved without holding the lock of the pool.
    fn grow(&self, len: usize) -> Result<bool> {
        let reserved = self.state().allocator.stats().reserved;
        let left = self.config.pool_size.saturating_sub(reserved);
        let least = len.next_multiple_of(self.config.slot_alignment);
        let size = self.config.segment_len(len).min(left);
        if size < least || self.state().segments.len() == MAX_SEGMENTS {
            // Segments without a slot in use may stand in the way of one that fits.
            return Ok(self.config.pool_size >= least && self.trim()? > 0);
        }
        let mut refused = Vec::new();
        let note = |wish, why| refused.push(NotGranted { wish, why });
        let segment = Segment::create(&self.entry.name, size, &self.config, note)?;
        let mut state = self.state();
        state.not_granted.append(&mut refused);
        let Some(id) = state.allocator.add_segment(segment.len) else { return Ok(false) };
        state.attachers.push(id, &segment);
        state.segments.insert(id, segment);
        Ok(true)
    }

    fn full(&self, len: usize) -> Error {
        let mut state = self.state();
        state.failures += 1;
        let stats = state.allocator.stats();
        Error::PoolFull {
            pool: self.entry.name.clone(),
            asked: len,
            slots: (stats.slots as usize, self.max_slots as usize),
            bytes: (stats.in_use, self.config.pool_size),
            holders: state.holders(),
        }
    }

    /// Like [`Owner::alloc`], but waits for a slot.
    pub(crate) fn alloc_timeout(&self, len: usize, timeout: Duration) -> Result<Granted<S>> {
        let deadline = Instant::now().checked_add(timeout);
        let hopeless = len > self.config.pool_size;
        loop {
            let full = match self.alloc(len) {
                Err(full @ Error::PoolFull { .. }) => full,
                done => return done,
            };
            if hopeless || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(full);
            }
            // It is not over yet.
            self.state().failures -= 1;
            self.wait_for_return();
        }
    }

    /// Sleeps until a slot is given back here, or for a moment: what others give back is only
    /// seen by looking.
    fn wait_for_return(&self) {
        let mut state = self.state();
        state.waiters += 1;
        self.set_waiting(true);
        let (mut state, _) =
            self.returned.wait_timeout(state, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner);
        state.waiters -= 1;
        self.set_waiting(state.waiters > 0);
    }

    pub(crate) fn notify_returned(&self) {
        self.returned.notify_one();
    }

    fn is_waited_for(&self) -> bool {
        self.header.get()[header::WAITING].load(Ordering::Relaxed) != 0
    }

    fn set_waiting(&self, waiting: bool) {
        self.header.get()[header::WAITING].store(u64::from(waiting), Ordering::Relaxed);
    }

    /// Takes back a slot that no handle of this process has any more. `published` says whether
    /// any descriptor of it was made.
    pub(crate) fn give_back(&self, slot: u32, spare: Option<S>, published: bool) {
        if self.inherited() {
            return;
        }
        let mut state = self.state();
        // A spare leads back here: after closing, keeping it would keep the pool for ever.
        let closed = self.closed.load(Ordering::Relaxed);
        let spare = if closed { spare } else { state.keep(slot, spare) };
        state.retire(slot, published, self.serials());
        let wake = state.waiters > 0;
        drop(state);
        drop(spare);
        if wake {
            self.returned.notify_one();
        }
    }

    /// Stops keeping spares, which refer to the pool, and allocating.
    pub(crate) fn close(&self) {
        if self.inherited() {
            return;
        }
        let mut state = self.state();
        // Under the lock, for `give_back`; before the swap, for `offer`.
        self.closed.store(true, Ordering::Relaxed);
        let server = state.server.take();
        let spares = state.take_spares();
        drop(state);
        self.cool();
        drop(server);
        drop(spares);
    }

    /// Frees every segment without a slot in use. The memory is the system's again when every
    /// attacher has unmapped it. Returns how many bytes that will be.
    pub(crate) fn trim(&self) -> Result<usize> {
        self.check_process()?;
        self.cool();
        let mut state = self.state();
        state.sweep_all(self.serials());
        let empty: Vec<SegmentId> = state.allocator.empty_segments().collect();
        let mut freed = Vec::new();
        for id in empty {
            if state.allocator.remove_segment(id) {
                state.attachers.forget(id);
                freed.extend(state.segments.remove(&id));
            }
        }
        let spares = state.drop_spares_of_unused();
        drop(state);
        drop(spares);
        Ok(freed.iter().map(|segment| segment.len).sum())
    }

    /// Leases a slot of this very pool by descriptor, in this process's own row.
    pub(crate) fn lease(&self, slot: u32, serial: u64) -> Result<(Slot, Arc<Map>)> {
        self.check_process()?;
        let refused = |why: Refused| why.into_error(&self.entry.name, slot, self.max_slots);
        let state = self.state();
        let published = self.published.get(slot as usize).ok_or(Refused::NoSuchSlot);
        if published.map_err(refused)?.load(Ordering::Relaxed) != serial {
            return Err(refused(Refused::Stale));
        }
        self.leases().by_serial(slot, serial).map_err(refused)?;
        let place = state.allocator.slot(slot);
        let found = place.and_then(|place| Some((place, state.segments.get(&place.segment)?)));
        match found {
            Some((place, segment)) => Ok((place, segment.map.clone())),
            None => {
                self.leases().release(slot);
                Err(refused(Refused::Stale))
            }
        }
    }

    pub(crate) fn release(&self, slot: u32) {
        if !self.inherited() {
            self.leases().release(slot);
            self.returned.notify_one();
        }
    }

    fn leases(&self) -> Leases<'_, Shipped> {
        Leases::new(&self.own_row, self.serials())
    }
}

/// Telling.
impl<S: Spared> Owner<S> {
    pub(crate) fn stats(&self) -> PoolStats {
        self.cool();
        let state = self.state();
        let found = state.allocator.stats();
        PoolStats {
            slots_in_use: found.slots as usize - state.retired.len(),
            retired: state.retired.len(),
            max_slots: self.max_slots as usize,
            bytes_in_use: found.in_use,
            bytes_reserved: found.reserved,
            pool_size: self.config.pool_size,
            peak_bytes: found.peak,
            waste_bytes: found.waste(),
            segments: state.segments.len(),
            attachers: state.rows.len() - 1,
            socket_watched: state.server.as_ref().is_some_and(Server::is_watched),
            allocations: self.allocations.load(Ordering::Relaxed),
            failures: state.failures,
            bytes_copied: self.copied.load(Ordering::Relaxed),
            not_granted: state.not_granted.iter().map(|refused| refused.wish).collect(),
        }
    }

    /// Counts bytes that were copied into a slot.
    pub(crate) fn count_copy(&self, bytes: usize) {
        self.copied.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn holders(&self) -> Vec<Holder> {
        self.state().holders()
    }
}
