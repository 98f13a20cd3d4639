//! A pool in the process that owns it.
//!
//! One lock protects the private state: which slots exist, which are in use, which processes are attached
//! (`state.rs`). Threads hold it for nanoseconds, to take a slot from the allocator or to return one (`allocate.rs`).
//! Memory is reserved without it (`growth.rs`).
//!
//! Other processes map the header, with a serial for each slot, and the segments, both read-only. They write only
//! their own rows. `ipc/lease/mod.rs` has the protocol.
//!
//! The pool keeps the buffer of each slot that it has freed, so that the next allocation makes no new one.

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

/// How many retired slots a report scans again.
const REPORT_SWEEP: usize = 64;

/// A pool that this process owns.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) endpoint: Endpoint,
    pub(crate) config: TensorPoolConfig,
    /// The number of slots, including those for adopted memory.
    pub(crate) max_slots: u32,
    /// The process that made the pool.
    creator: Creator,
    /// One cache line of flags, then the serials, then the locations of the slots.
    header: Words,
    pub(crate) header_fd: Arc<OwnedFd>,
    /// The publisher that shares the socket.
    pub(crate) handler: OnceLock<Weak<dyn ConnectionHandler>>,
    /// The row of this process, for leases on its own slots by descriptor.
    own_row: Arc<[AtomicU64]>,
    /// The serial under which each slot was last published. A slot that was not published cannot be leased here: a
    /// thread of this process may be writing it.
    published: Box<[AtomicU64]>,
    state: Mutex<OwnerState>,
    /// Buffers of free slots, to allocate without the lock of `state`. Shut while an allocation waits, and for good when
    /// the pool is closed or scrubs its slots. It is shut and opened under the lock of `state`.
    pub(crate) free_cache: FreeCache<Buffer>,
    /// How often each slot was allocated from the free cache. The thread that has the slot writes its word.
    uses: Box<[AtomicU64]>,
    /// Bytes that were copied into the pool.
    copied: AtomicU64,
    /// The length for which another segment shall be reserved, or 0.
    pub(crate) wanted: AtomicUsize,
    /// Notified when a slot is returned while an allocation waits.
    pub(crate) returned: Condvar,
    /// Held while a segment is made, so that no two threads make one.
    pub(crate) growing: Mutex<()>,
    /// Held while a server is made, so that no two threads make one.
    pub(crate) serving: Mutex<()>,
    /// Held by the thread that accepts connections, reads from them, or drops them. (A connection that is made to
    /// introduce the pool is not visible to other threads yet, and needs no lock.)
    pub(crate) accepting: Mutex<()>,
    /// Other pools of this process that are introduced to the readers of this one. Locked until the packets are sent,
    /// so that a publisher can rely on them.
    pub(crate) introduced: Mutex<IntroducedPools<Owner>>,
    /// No process can attach any more. Attached readers stay.
    closed: AtomicBool,
    /// The pool itself, while readers hold adopted memory that must be returned, and no handle of the pool is left.
    lingers: Mutex<Option<Arc<Owner>>>,
    /// Held while slots are scrubbed.
    pub(crate) scrubbing: Mutex<()>,
    /// For the private memory of header and state.
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
        // The process ends if heap memory runs out, so the memory is reserved first.
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

    /// The private memory that each slot costs, used or not.
    const BYTES_PER_SLOT: usize = OwnerState::BYTES_PER_SLOT + 3 * size_of::<AtomicU64>();

    /// Whether this process is a forked child of the owner. It owns nothing.
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

    /// Publishes the location of a slot that has moved. No descriptor of it exists yet.
    pub(crate) fn publish_location(&self, slot: Slot) {
        let at =
            header::locations(self.max_slots) + header::WORDS_PER_LOCATION * slot.index as usize;
        let location = [u64::from(slot.segment.0), slot.offset as u64, slot.capacity as u64];
        for (word, value) in self.header.get()[at..].iter().zip(location) {
            // Relaxed: the packet or ring entry that carries the first descriptor of the slot orders this, too.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Notes that the slot's present content is published. Returns its serial.
    #[inline]
    pub(crate) fn publish(&self, slot: u32) -> u64 {
        let serial = self.serial(slot);
        if let Some(published) = self.published.get(slot as usize) {
            published.store(serial, Ordering::Relaxed);
        }
        serial
    }

    /// Counts an allocation without the lock. A plain store is enough: only the calling thread has the slot.
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

    /// Opens the free cache again, unless the pool is closed or scrubs.
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

/// Leases on own slots, and closing.
impl Owner {
    /// Ends the endpoint and the free cache, whose buffers refer to the pool. Returns the directory of the endpoint, or
    /// `None` if the pool was closed before.
    pub(crate) fn close(&self) -> Option<Arc<SocketDir>> {
        if self.is_inherited() {
            return None;
        }
        // A thread that makes the endpoint again at this moment would leave a directory behind.
        let _serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state.closed = true;
        self.closed.store(true, Ordering::Relaxed);
        let cached = self.free_cache.shut();
        let server = state.server.take();
        let kept = state.take_kept();
        drop(state);
        cached.into_iter().for_each(|buffer| self.return_cached(buffer));
        let socket_dir = server.as_ref().map(Server::socket_dir);
        drop(server);
        drop(kept);
        socket_dir
    }

    /// Keeps the pool alive for as long as readers hold memory that must be returned, such as that of a camera. Without
    /// an owner, no process would notice that they release it.
    pub(crate) fn linger(self: &Arc<Self>) {
        if !self.is_inherited() && self.state().has_returnable_leased() {
            *self.lingers() = Some(self.clone());
        }
        // They may have released it just now, and no other thread may check again.
        self.stop_lingering();
    }

    /// Undoes [`Owner::linger`] once no such memory is left. The caller holds a reference to the pool.
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

    /// Whether other processes can still attach.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    /// Leases a slot of this pool by a descriptor, in the row of this process.
    pub(crate) fn lease(&self, slot: u32, serial: u64) -> Result<(Slot, Arc<Map>)> {
        self.check_process()?;
        let refused = |why: Refused| why.into_error(&self.endpoint.name, slot, self.max_slots);
        let state = self.state();
        let published = self.published.get(slot as usize).ok_or(Refused::NoSuchSlot);
        if published.map_err(refused)?.load(Ordering::Relaxed) != serial {
            return Err(refused(Refused::Stale));
        }
        self.leases().by_serial(slot, serial).map_err(refused)?;
        let found = state.slot(slot);
        let found = found.and_then(|slot| Some((slot, state.segments.get(&slot.segment)?)));
        match found {
            Some((slot, segment)) => Ok((slot, segment.map.clone())),
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

/// Reports.
impl Owner {
    pub(crate) fn stats(&self) -> PoolStats {
        self.flush_free_cache();
        self.state().scan_deferred(self.serials());
        let state = self.swept(REPORT_SWEEP);
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

    /// Counts bytes that were copied into the pool.
    pub(crate) fn count_copy(&self, bytes: usize) {
        self.copied.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn holders(&self) -> Vec<Holder> {
        self.flush_free_cache();
        self.state().scan_deferred(self.serials());
        let holders = self.swept(usize::MAX).holders();
        with_programs(holders)
    }

    /// This process and all readers, with the slots that they hold. For other processes, so this one has its program name.
    pub(crate) fn processes(&self) -> Vec<Holder> {
        self.flush_free_cache();
        self.state().scan_deferred(self.serials());
        let mut found = self.swept(REPORT_SWEEP).processes();
        found.iter_mut().for_each(|process| process.program = peer::program(process.pid));
        found
    }
}

/// Makes a header that only this process can write, with the first serial for each slot.
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
