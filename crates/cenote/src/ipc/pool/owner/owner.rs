//! A pool, in the process that owns it.
//!
//! Everything that decides who has which bytes is private memory behind one lock, which is held
//! for nanoseconds: allocating is taking a slot from the allocator, dropping is giving it back
//! (`allocate.rs`). Memory is reserved without it (`growth.rs`).
//! What other processes can see is the header (a serial for each slot) and the segments, both
//! read-only to them; what they can write is their own row. See `ipc/lease/reader.rs` for the protocol.
//!
//! The pool keeps one spare of type `S` for each slot: whatever the layer above needs to make a
//! handle of a slot, so that it need not be allocated each time.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::error::{Error, Holder, Result};
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::lease::reader::{Leases, Refused, Shipped};
use crate::ipc::lease::serial;
use crate::ipc::pool::config::TensorPoolConfig;
use crate::ipc::pool::owner::free_cache::FreeCache;
use crate::ipc::pool::owner::server::connection_handler::ConnectionHandler;
use crate::ipc::pool::owner::server::introduced_pools::IntroducedPools;
use crate::ipc::pool::owner::server::server::Server;
use crate::ipc::pool::owner::state::{OwnerState, with_programs};
use crate::ipc::pool::stats::PoolStats;
use crate::ipc::shared::wire::{MAX_ADOPTED, header};
use crate::ipc::shared::words::Words;
use crate::memory::budget::{Budget, Reservation};
use crate::memory::slot::Slot;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sys::fork::Creator;
use crate::sys::mapping::Map;
use crate::sys::socket::peer;
use crate::tensor::buffer::Buffer;

/// How many retired slots are looked at again for an account.
const SWEEP_TELLING: usize = 64;

/// A pool that this process owns.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) endpoint: Endpoint,
    pub(crate) config: TensorPoolConfig,
    /// Those of adopted memory included.
    pub(crate) max_slots: u32,
    /// The process that made it.
    creator: Creator,
    /// A line of flags, then the serials.
    header: Words,
    pub(crate) header_fd: Arc<OwnedFd>,
    /// Whoever shares the socket.
    pub(crate) handler: OnceLock<Weak<dyn ConnectionHandler>>,
    /// The row of this process: leases that it takes on its own slots by descriptor.
    own_row: Arc<[AtomicU64]>,
    /// The serial under which each slot was last published. What never was cannot be leased here,
    /// where it may be under `&mut`.
    published: Box<[AtomicU64]>,
    state: Mutex<OwnerState>,
    /// Whoever asks for as many bytes as one of these has is given it without taking the lock. Shut
    /// while somebody waits, for good when the pool is closed or scrubs; all that under the lock.
    pub(crate) free_cache: FreeCache<Buffer>,
    /// How often each slot was allocated without the lock. Written by whoever has the slot.
    uses: Box<[AtomicU64]>,
    /// Bytes that were copied into the pool.
    copied: AtomicU64,
    /// The size for which another segment is to be reserved; 0 if none is.
    pub(crate) wanted: AtomicUsize,
    /// A slot was given back while somebody waits.
    pub(crate) returned: Condvar,
    /// Held while a segment is made, so that two threads do not both make one.
    pub(crate) growing: Mutex<()>,
    /// Held while a socket is made, likewise.
    pub(crate) serving: Mutex<()>,
    /// Held by whoever lets others in, listens to them, or notices that they have gone. (Whoever is lent this
    /// pool is let in without: his connection is nobody else's yet.)
    pub(crate) accepting: Mutex<()>,
    /// Other pools of this process that are introduced to the readers of this one. Locked while that happens, so
    /// that a sender of their tensors knows that it has happened.
    pub(crate) introduced: Mutex<IntroducedPools<Owner>>,
    /// Nobody is let in any more. Those who are attached stay.
    closed: AtomicBool,
    /// Itself, while others hold what was lent to the pool, though nobody here has a handle of it.
    lingers: Mutex<Option<Arc<Owner>>>,
    /// Held while slots are overwritten.
    pub(crate) scrubbing: Mutex<()>,
    /// The private memory of header and state.
    _reservation: Reservation,
}

impl Owner {
    pub(crate) fn new(
        endpoint: Endpoint,
        config: TensorPoolConfig,
        max_slots: u32,
    ) -> Result<Self> {
        let own_slots = max_slots;
        let max_slots = max_slots + MAX_ADOPTED;
        // Heap memory that cannot be had is the end of the process, so it is asked for first.
        let slots = max_slots as usize;
        let reservation = Budget::reserve(slots * Self::BYTES_PER_SLOT)?;
        let (header, header_fd) = new_header(max_slots)?;
        let own_row: Arc<[AtomicU64]> = (0..max_slots).map(|_| AtomicU64::new(0)).collect();
        let state = OwnerState::new(&config, own_slots, own_row.clone());
        let owner = Owner {
            endpoint,
            config,
            max_slots,
            creator: Creator::this_process(),
            header,
            header_fd,
            handler: OnceLock::new(),
            own_row,
            published: (0..max_slots).map(|_| AtomicU64::new(0)).collect(),
            state: Mutex::new(state),
            free_cache: FreeCache::new(),
            uses: (0..max_slots).map(|_| AtomicU64::new(0)).collect(),
            copied: AtomicU64::new(0),
            wanted: AtomicUsize::new(0),
            returned: Condvar::new(),
            growing: Mutex::new(()),
            serving: Mutex::new(()),
            accepting: Mutex::new(()),
            introduced: Mutex::new(IntroducedPools::new()),
            closed: AtomicBool::new(false),
            lingers: Mutex::new(None),
            scrubbing: Mutex::new(()),
            _reservation: reservation,
        };
        if owner.config.scrub {
            drop(owner.free_cache.shut());
        }
        Ok(owner)
    }

    /// The private memory that a slot costs, used or not.
    const BYTES_PER_SLOT: usize = OwnerState::BYTES_PER_SLOT + 3 * size_of::<AtomicU64>();

    /// Whether this process is a forked child of the owner, which owns nothing.
    #[inline]
    pub(crate) fn is_inherited(&self) -> bool {
        self.creator.is_inherited()
    }

    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_inherited() {
            Err(Error::Forked { pool: self.endpoint.name.clone() })
        } else {
            Ok(())
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> MutexGuard<'_, OwnerState> {
        // No code under this lock panics between two halves of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn serials(&self) -> &[AtomicU64] {
        &self.header.get()[header::SERIALS..]
    }

    /// Shows others where a slot is that was moved. Nobody has a descriptor of it yet.
    pub(crate) fn publish_location(&self, slot: Slot) {
        let at =
            header::locations(self.max_slots) + header::WORDS_PER_LOCATION * slot.index as usize;
        let socket_dir = [u64::from(slot.segment.0), slot.offset as u64, slot.capacity as u64];
        for (word, value) in self.header.get()[at..].iter().zip(socket_dir) {
            // Relaxed: whatever carries the first descriptor of the slot carries this along.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Notes that a descriptor of the slot's present content was made, and gives its serial.
    #[inline]
    pub(crate) fn publish(&self, slot: u32) -> u64 {
        let serial = self.serial(slot);
        if let Some(published) = self.published.get(slot as usize) {
            published.store(serial, Ordering::Relaxed);
        }
        serial
    }

    /// Counts an allocation without the lock, and without an exchange: the slot is the caller's alone.
    #[inline]
    pub(crate) fn count_alloc(&self, slot: u32) {
        if let Some(uses) = self.uses.get(slot as usize) {
            uses.store(uses.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    fn quick_allocations(&self) -> u64 {
        self.uses.iter().map(|uses| uses.load(Ordering::Relaxed)).sum()
    }

    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.header.get()[header::WAITING].load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set_waiting(&self, waiting: bool) {
        self.header.get()[header::WAITING].store(u64::from(waiting), Ordering::Relaxed);
    }

    /// Lets spares be kept ready again, if they may be.
    pub(crate) fn open_free_cache(&self, state: &OwnerState) {
        if !state.closed && !self.config.scrub {
            self.free_cache.open();
        }
    }

    /// The serial of a slot that is in use.
    #[inline]
    pub(crate) fn serial(&self, slot: u32) -> u64 {
        self.serials().get(slot as usize).map_or(0, |serial| serial.load(Ordering::Relaxed))
    }
}

/// Leasing, and closing.
impl Owner {
    /// Stops letting others in, and keeping spares, which refer to the pool. Gives the directory it was
    /// found in, unless it was closed before.
    pub(crate) fn close(&self) -> Option<Arc<SocketDir>> {
        if self.is_inherited() {
            return None;
        }
        // Whoever makes the socket anew just now would leave a directory behind.
        let _serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state.closed = true;
        self.closed.store(true, Ordering::Relaxed);
        let free_cache = self.free_cache.shut();
        let server = state.server.take();
        let kept = state.take_kept();
        drop(state);
        free_cache.into_iter().for_each(|buffer| self.return_cached(buffer));
        let socket_dir = server.as_ref().map(Server::socket_dir);
        drop(server);
        drop(kept);
        socket_dir
    }

    /// Stays for as long as others hold memory that has to be given back when they let go, as that of a
    /// camera has: without an owner nobody would know whether they did.
    pub(crate) fn linger(self: &Arc<Self>) {
        if !self.is_inherited() && self.state().has_returnable_leased() {
            *self.lingers() = Some(self.clone());
        }
        // They may have let go just now, and nobody may look again.
        self.stop_lingering();
    }

    /// Undoes [`Owner::linger`] when nothing is left to be given back. The caller has a handle.
    pub(crate) fn stop_lingering(&self) {
        let done = !self.is_inherited()
            && self.lingers().is_some()
            && !self.state().has_returnable_leased();
        let lingered = if done { self.lingers().take() } else { None };
        drop(lingered);
    }

    fn lingers(&self) -> MutexGuard<'_, Option<Arc<Owner>>> {
        self.lingers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether others can still attach.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    /// Leases a slot of this very pool by descriptor, in this process's own row.
    pub(crate) fn lease(&self, slot: u32, serial: u64) -> Result<(Slot, Arc<Map>)> {
        self.check_process()?;
        let refused = |why: Refused| why.into_error(&self.endpoint.name, slot, self.max_slots);
        let state = self.state();
        let published = self.published.get(slot as usize).ok_or(Refused::NoSuchSlot);
        if published.map_err(refused)?.load(Ordering::Relaxed) != serial {
            return Err(refused(Refused::Stale));
        }
        self.leases().by_serial(slot, serial).map_err(refused)?;
        let socket_dir = state.slot(slot);
        let found = socket_dir
            .and_then(|socket_dir| Some((socket_dir, state.segments.get(&socket_dir.segment)?)));
        match found {
            Some((socket_dir, segment)) => Ok((socket_dir, segment.map.clone())),
            None => {
                self.leases().release(slot);
                Err(refused(Refused::Stale))
            }
        }
    }

    pub(crate) fn release(&self, slot: u32) {
        if !self.is_inherited() {
            self.leases().release(slot);
            self.notify_waiting();
        }
    }

    fn leases(&self) -> Leases<'_, Shipped> {
        Leases::new(&self.own_row, self.serials())
    }
}

/// Telling.
impl Owner {
    pub(crate) fn stats(&self) -> PoolStats {
        self.flush_free_cache();
        self.state().scan_deferred(self.serials());
        let state = self.swept(SWEEP_TELLING);
        let found = state.allocator.stats();
        PoolStats {
            slots_in_use: state.own_slots(),
            retired: state.retired.len(),
            max_slots: self.config.max_slots,
            bytes_in_use: found.in_use,
            bytes_reserved: found.reserved,
            pool_size: self.config.pool_size,
            peak_bytes: found.peak,
            waste_bytes: found.waste(),
            segments: state.own_segments(),
            attachers: state.rows.len() - 1,
            socket_watched: state.server.as_ref().is_some_and(Server::is_watched),
            allocations: state.allocations + self.quick_allocations(),
            failures: state.failures,
            bytes_copied: self.copied.load(Ordering::Relaxed),
            not_granted: state.not_granted.clone(),
        }
    }

    /// Counts bytes that were copied into a slot.
    pub(crate) fn count_copy(&self, bytes: usize) {
        self.copied.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn holders(&self) -> Vec<Holder> {
        self.flush_free_cache();
        self.state().scan_deferred(self.serials());
        let holders = self.swept(usize::MAX).holders();
        with_programs(holders)
    }

    /// This process and everybody who is attached, with what they hold if anything: for others, to whom this process is one like the rest.
    pub(crate) fn processes(&self) -> Vec<Holder> {
        self.flush_free_cache();
        self.state().scan_deferred(self.serials());
        let mut found = self.swept(SWEEP_TELLING).processes();
        found.iter_mut().for_each(|process| process.program = peer::program(process.pid));
        found
    }
}

/// A header that only this process can write, with the first serial for every slot.
fn new_header(max_slots: u32) -> Result<(Words, Arc<OwnedFd>)> {
    let error = |source| Error::os("reserving the header of a pool", source);
    let len = header::words(max_slots);
    let reservation = Budget::reserve(len * size_of::<u64>())?;
    let (words, fd) = Words::create("cenote-header", len).map_err(error)?;
    reservation.settle();
    crate::sys::memfd::forbid_writing(&fd).map_err(error)?;
    for word in &words.get()[header::SERIALS..header::locations(max_slots)] {
        word.store(serial::FIRST, Ordering::Relaxed);
    }
    Ok((words, fd))
}
