//! A pool in a process that attached to it.
//!
//! Header and segments are mapped read-only. The kernel enforces that, so a bug here cannot change what other processes
//! read. This process writes only its own row. When the owner dies, leased slots stay as they are: no process is left
//! that could reuse them.
//!
//! Everything that comes from the owner is checked before it is used: sizes and seals of files when they arrive, slot
//! numbers, segment numbers and ranges each time.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::intervals::{EXIT_TIME, SEGMENT_RETRY, SEGMENT_TIMEOUT};
use crate::ipc::discovery::handshake::{Answer, Connecting};
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::discovery::{handshake, socket_dir};
use crate::ipc::lease::reader::{Leases, Refused, Shipped};
use crate::ipc::pool::reader::lease_table::LeaseTable;
use crate::ipc::service_thread;
use crate::ipc::service_thread::{Served, Watch};
use crate::ipc::shared::fd_checks;
use crate::ipc::shared::wire::{
    Attached, Kind, MAX_INTRODUCED, MAX_SHARED, Packet, Refusal, header, row,
};
use crate::ipc::shared::words::Words;
use crate::memory::budget::{Budget, Reservation};
use crate::memory::slot::{SegmentId, Slot};
use crate::sync::{AtomicBool, AtomicU64, Biased, Ordering};
use crate::sys::fork::{Creator, GuardedSocket};
use crate::sys::mapping::Map;
use crate::sys::socket::packet;
use crate::sys::socket::peer::Peer;
use crate::tensor::buffer::Buffer;

/// The most segments that an owner can make this process map. It is more than a pool has at a time, because the packet
/// about a removed one may be late or lost.
const MAX_MAPPED: usize = 4 * MAX_SHARED;

/// How many packets are read before other events are served.
pub(crate) const PACKETS_AT_ONCE: usize = 64;

/// How many packets of a dead owner are read: more than a socket holds.
const LAST_PACKETS: usize = 1 << 12;

/// A pool of another process.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) endpoint: Endpoint,
    pub(crate) owner: Peer,
    creator: Creator,
    max_slots: u32,
    header: Words,
    connection: Arc<GuardedSocket>,
    /// The leases, and the buffers that are kept for the next leases. A thread that holds this lock takes no other.
    lease_table: Biased<LeaseTable<Buffer>>,
    state: Mutex<AttachmentState>,
    /// Held while packets are read and handled, so that a thread that gets this lock knows that earlier ones were handled.
    receiving: Mutex<()>,
    arrived: Condvar,
    /// The owner has died or disconnected.
    gone: AtomicBool,
    /// When that was noticed.
    disconnected_since: OnceLock<Instant>,
    /// For the private memory of the lease table.
    _reservation: Reservation,
}

/// A leased slot.
#[derive(Debug)]
pub(crate) enum Leased {
    /// The buffer from the last lease on the same range.
    Recycled(Arc<Buffer>),
    /// A range of a segment.
    New(Slot, Arc<Map>),
}

#[derive(Debug)]
pub(crate) struct AttachmentState {
    segments: HashMap<u32, Arc<Map>>,
    watches: Vec<Watch>,
    /// The attachment itself, while it stays although no handle uses it. Then buffers are kept, too.
    pub(crate) kept_alive: Option<Arc<Attachment>>,
    /// How many slots this process held and how many it may hold, if the owner expelled it for that.
    expelled: Option<(u32, u32)>,
    /// Other pools of the same owner, by uid, which the owner has introduced.
    pub(crate) introduced: HashMap<u64, Arc<Attachment>>,
    /// The most such pools.
    pub(crate) max_introduced: usize,
    /// When a thread that does not wait last requested a segment.
    requested_at: Option<Instant>,
}

/// Starts to attach to a pool. The thread that receives the answer calls `then`.
pub(crate) fn begin_at(
    socket_dir: &SocketDir,
    endpoint: &Endpoint,
    then: impl FnOnce(Result<Arc<Attachment>>) + Send + 'static,
) -> Result<Connecting> {
    let request = Packet::new(Kind::Attach);
    let ours = endpoint.clone();
    let then = move |answer: Result<Answer>| then(answer.and_then(|answer| answered(ours, answer)));
    handshake::begin(
        socket_dir,
        endpoint,
        bytemuck::bytes_of(&request),
        size_of::<Attached>(),
        then,
    )
}

/// Makes an attachment from the owner's answer.
pub(crate) fn answered(endpoint: Endpoint, answer: Answer) -> Result<Arc<Attachment>> {
    let (kind, head) = Packet::parse(&answer.bytes)?;
    match kind {
        Kind::Attached => Attachment::new(endpoint, answer, MAX_INTRODUCED),
        Kind::Refused => {
            Err(Error::AttachRefused { pool: endpoint.name, why: Refusal::why(head.index) })
        }
        _ => Err(Error::BadMessage { what: "the owner's packet is no answer" }),
    }
}

impl Attachment {
    /// Makes an attachment from an `Attached` packet. The owner may introduce at most `max_introduced` other pools.
    pub(crate) fn new(
        endpoint: Endpoint,
        Answer { peer: owner, connection, bytes, mut fds }: Answer,
        max_introduced: usize,
    ) -> Result<Arc<Self>> {
        let attached = Attached::parse(&bytes)?;
        let infos = attached.segments();
        if fds.len() != 2 + infos.len() || attached.uid != endpoint.uid {
            return Err(Error::BadMessage { what: "the owner's answer contradicts itself" });
        }
        let segment_fds = fds.split_off(2);
        let header_len = header::words(attached.max_slots);
        let row_len = row::words(attached.max_slots);

        let row = fd_checks::open_row(fds.swap_remove(1), row_len)?;
        let header = fd_checks::open_header(&fds[0], header_len)?;
        let mut segments = HashMap::new();
        for (info, fd) in infos.iter().zip(&segment_fds) {
            segments.insert(info.index, Arc::new(fd_checks::open_segment(fd, info.len)?));
        }
        // The owner chooses the number of slots, so the memory is reserved first.
        let table_bytes = attached.max_slots as usize * LeaseTable::<Buffer>::BYTES_PER_SLOT;
        let reservation = Budget::reserve(table_bytes)?;
        let lease_table = LeaseTable::new(row, attached.max_slots, attached.max_leases);
        let state = AttachmentState {
            segments,
            watches: Vec::new(),
            kept_alive: None,
            expelled: None,
            introduced: HashMap::new(),
            max_introduced,
            requested_at: None,
        };
        let attachment = Arc::new(Attachment {
            endpoint,
            owner,
            creator: Creator::this_process(),
            max_slots: attached.max_slots,
            header,
            connection,
            lease_table: Biased::new(lease_table),
            state: Mutex::new(state),
            receiving: Mutex::new(()),
            arrived: Condvar::new(),
            gone: AtomicBool::new(false),
            disconnected_since: OnceLock::new(),
            _reservation: reservation,
        });
        attachment.watch()?;
        Ok(attachment)
    }

    fn watch(self: &Arc<Self>) -> Result<()> {
        let error = |source| Error::os("watching a socket", source);
        let served: Weak<dyn Served> = Arc::downgrade(&(self.clone() as Arc<dyn Served>));
        let mut watches = Vec::new();
        if let Some(pidfd) = &self.owner.pidfd {
            watches.push(service_thread::watch(pidfd, served.clone(), OWNER).map_err(error)?);
        }
        watches.push(service_thread::watch(&self.connection, served, CONNECTION).map_err(error)?);
        self.state().watches = watches;
        Ok(())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, AttachmentState> {
        // No code under this lock panics between two halves of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process is a forked child of the one that attached.
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

    /// Whether leases are still valid: the owner is connected, or it is dead and can reuse nothing.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_disconnected() || self.owner.has_ended()
    }

    /// Whether the owner has disconnected a moment ago and may be about to die. The kernel closes the sockets of a dying
    /// process before it reports the death. The caller checks again.
    pub(crate) fn may_be_dying(&self) -> bool {
        self.is_disconnected() && !self.owner.has_ended() && self.has_just_disconnected()
    }

    /// Whether leases are valid, or will be if the owner is about to die. One check: between two of them it may die.
    pub(crate) fn may_lease(&self) -> bool {
        !self.is_disconnected() || self.has_just_disconnected() || self.owner.has_ended()
    }

    fn has_just_disconnected(&self) -> bool {
        self.disconnected_since.get().is_some_and(|since| since.elapsed() < EXIT_TIME)
    }

    #[inline]
    pub(crate) fn is_disconnected(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Keeps the pool attached although no handle uses it, until the owner dies: each dead owner would leave file
    /// descriptors and mappings behind.
    pub(crate) fn keep_alive(self: &Arc<Self>) {
        let mut state = self.state();
        if !self.is_disconnected() {
            state.kept_alive = Some(self.clone());
            self.lease_table.lock().keep_buffers();
        }
    }

    /// Undoes [`Attachment::keep_alive`]. Kept buffers refer to the attachment, so no more are kept.
    pub(crate) fn end_keep_alive(&self) {
        if !self.is_inherited() {
            let mut state = self.state();
            let (kept_alive, buffers) =
                (state.kept_alive.take(), self.lease_table.lock().stop_keeping());
            let introduced: Vec<_> = state.introduced.values().cloned().collect();
            drop(state);
            introduced.iter().for_each(|pool| pool.end_keep_alive());
            drop((kept_alive, buffers));
        }
    }

    #[inline(always)]
    fn serials(&self) -> &[AtomicU64] {
        &self.header.get()[header::SERIALS..]
    }

    /// Notes where the bytes of a slot are mapped.
    pub(crate) fn note_address(&self, slot: u32, at: *const u8) {
        self.lease_table.lock().note_address(slot, at);
    }

    /// Leases a slot that a descriptor names. Waits for a segment that has not arrived yet, up to a limit.
    pub(crate) fn lease(&self, slot: u32, serial: u64) -> Result<Leased> {
        self.lease_by(slot, SEGMENT_TIMEOUT, |leases| leases.by_serial(slot, serial))
    }

    /// As [`Attachment::lease`], but does not wait.
    pub(crate) fn try_lease(&self, slot: u32, serial: u64) -> Result<Leased> {
        self.lease_by(slot, Duration::ZERO, |leases| leases.by_serial(slot, serial))
    }

    /// Leases a slot that an entry of its owner's ring names, if the entry is `unchanged`. Does not wait.
    pub(crate) fn try_lease_entry(
        &self,
        slot: u32,
        unchanged: impl Fn() -> bool,
    ) -> Result<Leased> {
        self.lease_by(slot, Duration::ZERO, |leases| leases.by_entry(slot, &unchanged))
    }

    fn lease_by(
        &self,
        slot: u32,
        timeout: Duration,
        lease: impl FnOnce(Leases<'_, Shipped>) -> Result<(), Refused>,
    ) -> Result<Leased> {
        self.check_process()?;
        self.check_usable()?;
        let mut lease_table = self.lease_table.lock();
        let leased = lease_table.lease(slot, self.serials(), lease);
        let leased = leased.map(|()| lease_table.take_buffer(slot));
        drop(lease_table);
        let buffer =
            leased.map_err(|why| why.into_error(&self.endpoint.name, slot, self.max_slots))?;
        if let Some(buffer) = buffer.filter(|buffer| self.is_at(buffer)) {
            return Ok(Leased::Recycled(buffer));
        }
        let found = self.locate(slot, timeout);
        let found = found.inspect_err(|_| {
            self.lease_table.lock().end_lease(slot);
        });
        found.map(|(slot, map)| Leased::New(slot, map))
    }

    /// Leases a slot again that an entry of its owner's ring names. Returns its kept buffer, or `None` if
    /// [`Attachment::try_lease_entry`] has to do it.
    #[inline(always)]
    pub(crate) fn lease_entry_again(
        &self,
        slot: u32,
        unchanged: impl Fn() -> bool,
    ) -> Option<Arc<Buffer>> {
        if self.is_inherited() || self.is_disconnected() {
            return None;
        }
        self.lease_table.lock().lease_again(slot, unchanged, |buffer| self.is_at(buffer))
    }

    #[inline]
    fn check_usable(&self) -> Result<()> {
        if self.is_usable() {
            return Ok(());
        }
        let pool = self.endpoint.name.clone();
        Err(match self.state().expelled {
            Some((held, max)) => Error::Expelled { pool, held, max },
            None => Error::PoolClosed { pool, pid: self.owner.pid },
        })
    }

    /// The location of a leased slot, from the owner's header.
    fn location(&self, slot: u32) -> Option<Slot> {
        let [segment, offset, capacity] = self.location_words(slot)?;
        Some(Slot {
            index: slot,
            segment: SegmentId(u32::try_from(segment).ok()?),
            offset: usize::try_from(offset).ok()?,
            capacity: usize::try_from(capacity).ok()?,
        })
    }

    /// Whether a slot is still at the location for which its buffer was made.
    #[inline(always)]
    fn is_at(&self, buffer: &Buffer) -> bool {
        let Some(slot) = buffer.slot_ref().map(|slot_ref| slot_ref.slot) else { return false };
        // Word by word: comparing it as a whole would store it to memory first, and wait for the store.
        self.location_words(slot.index).is_some_and(|[segment, offset, capacity]| {
            segment == u64::from(slot.segment.0)
                && offset == slot.offset as u64
                && capacity == slot.capacity as u64
        })
    }

    #[inline(always)]
    fn location_words(&self, slot: u32) -> Option<[u64; header::WORDS_PER_LOCATION]> {
        let at = header::locations(self.max_slots) + header::WORDS_PER_LOCATION * slot as usize;
        let words = self.header.get().get(at..at + header::WORDS_PER_LOCATION)?;
        Some(std::array::from_fn(|n| words[n].load(Ordering::Relaxed)))
    }

    /// The location of a leased slot and its segment, checked against the mapping.
    fn locate(&self, slot: u32, timeout: Duration) -> Result<(Slot, Arc<Map>)> {
        let invalid = || Error::BadMessage { what: "a slot that lies in no segment" };
        let slot = self.location(slot).ok_or_else(invalid)?;
        let map = self.segment(slot.segment.0, timeout)?;
        if slot.offset.checked_add(slot.capacity).is_none_or(|end| end > map.len()) {
            return Err(invalid());
        }
        Ok((slot, map))
    }

    /// A segment by its number. Requests it if it has not arrived yet, and waits for it up to `timeout`.
    fn segment(&self, number: u32, timeout: Duration) -> Result<Arc<Map>> {
        let mut state = self.state();
        if let Some(map) = state.segments.get(&number) {
            return Ok(map.clone());
        }
        let missing = |waited| Error::NoSuchSegment {
            pool: self.endpoint.name.clone(),
            segment: number,
            pid: self.owner.pid,
            waited,
        };
        if timeout.is_zero() {
            // It is most likely on its way, and a thread that does not wait may call this very often.
            if state.requested_at.is_none_or(|requested_at| requested_at.elapsed() >= SEGMENT_RETRY)
            {
                state.requested_at = Some(Instant::now());
                self.request_segment(number);
            }
            return Err(missing(timeout));
        }
        let start = Instant::now();
        let mut pause = SEGMENT_RETRY;
        while start.elapsed() < timeout && !self.is_disconnected() {
            self.request_segment(number);
            let waited = self.arrived.wait_timeout(state, pause);
            let waited = waited.unwrap_or_else(PoisonError::into_inner);
            // Other segments that arrive do not lengthen the pause: there may be thousands.
            pause *= if waited.1.timed_out() { 2 } else { 1 };
            state = waited.0;
            if let Some(map) = state.segments.get(&number) {
                return Ok(map.clone());
            }
        }
        Err(missing(start.elapsed()))
    }

    fn request_segment(&self, segment: u32) {
        let more = Packet::segment(Kind::SegmentRequest, segment, 0);
        let _ = packet::send(self.connection.as_fd(), bytemuck::bytes_of(&more), &[]);
    }

    /// Ends a lease.
    pub(crate) fn release(&self, slot: u32) {
        if self.is_inherited() {
            return;
        }
        self.lease_table.lock().end_lease(slot);
        if self.owner_is_waiting() {
            self.wake_owner();
        }
    }

    #[inline(always)]
    pub(crate) fn lease_table(&self) -> &Biased<LeaseTable<Buffer>> {
        &self.lease_table
    }

    #[inline]
    pub(crate) fn owner_is_waiting(&self) -> bool {
        self.header.get()[header::WAITING].load(Ordering::Relaxed) != 0
    }

    /// Wakes an owner that waits for a slot.
    #[cold]
    pub(crate) fn wake_owner(&self) {
        let wake = Packet::new(Kind::Wake);
        let _ = packet::send(self.connection.as_fd(), bytemuck::bytes_of(&wake), &[]);
    }

    /// Reads and handles what the owner sent, up to `limit` packets.
    pub(crate) fn receive(&self, limit: usize) {
        let _listening = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0; 256];
        for _ in 0..limit {
            match packet::recv(self.connection.as_fd(), &mut bytes) {
                Ok((0, _)) => return self.owner_disconnected(),
                Ok((len, fds)) => self.handle(&bytes[..len], fds),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    // What was sent before a reset can still be read. A packet that is too long is ignored. A packet for
                    // whose descriptors this process had no room is requested again when its segment is needed.
                    io::ErrorKind::ConnectionReset | io::ErrorKind::InvalidData => {}
                    _ if socket_dir::is_shortage(&error) => {}
                    _ => return self.owner_disconnected(),
                },
            }
        }
    }

    /// Handles one packet. Ignores invalid packets: they can do no harm.
    fn handle(&self, bytes: &[u8], mut fds: Vec<OwnedFd>) {
        let Ok((kind, packet)) = Packet::parse(bytes) else { return };
        match (kind, &*fds) {
            (Kind::Introduced, [_]) => {
                let name = &bytes[size_of::<Packet>()..];
                fds.pop().into_iter().for_each(|fd| self.attach_introduced(packet.len, name, fd));
            }
            (Kind::Segment, [fd]) => {
                if let Ok(map) = fd_checks::open_segment(fd, packet.len) {
                    let mut state = self.state();
                    if state.segments.len() < MAX_MAPPED {
                        state.segments.entry(packet.index).or_insert_with(|| Arc::new(map));
                    }
                    drop(state);
                    self.arrived.notify_all();
                }
            }
            (Kind::SegmentRemoved, []) => {
                let mut state = self.state();
                let gone = state.segments.remove(&packet.index);
                // Kept buffers keep segments mapped, too.
                let buffers = if gone.is_some() {
                    self.lease_table.lock().take_buffers()
                } else {
                    Vec::new()
                };
                drop(state);
                drop((gone, buffers));
            }
            (Kind::Refused, []) => self.state().expelled = Refusal::too_many(packet),
            _ => {}
        }
    }

    fn owner_disconnected(&self) {
        let _ = self.disconnected_since.set(Instant::now());
        // A thread that sees this sees the segments that arrived before.
        self.gone.store(true, Ordering::Release);
        let watches = std::mem::take(&mut self.state().watches);
        drop(watches);
        self.arrived.notify_all();
        self.end_keep_alive();
    }
}

/// The tokens of what the service thread watches.
const CONNECTION: u64 = 0;
const OWNER: u64 = 1;

impl Served for Attachment {
    fn ready(self: Arc<Self>, token: u64) {
        if token == OWNER {
            // Packets that the owner sent before it died can still be read.
            self.receive(LAST_PACKETS);
            self.owner_disconnected();
        } else {
            self.receive(PACKETS_AT_ONCE);
        }
    }
}
