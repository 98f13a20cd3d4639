//! A pool, in a process that attached to it.
//!
//! Header and segments are mapped read-only: the kernel sees to that, so a bug here cannot change
//! what others read. The only thing written is this process's own row. When the owner dies, what
//! is leased stays as it is, for nobody is left who could reuse it.
//!
//! Everything that comes from the owner is checked before it is used: sizes and seals of files
//! when they arrive, slot and segment numbers and ranges each time.

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

/// The most segments that an owner can make this process map: more than it has at a time, because
/// word of one that is gone may be late, or lost.
const MAX_MAPPED: usize = 4 * MAX_SHARED;

/// How many packets are read before others have their turn.
pub(crate) const PACKETS_AT_ONCE: usize = 64;

/// How many are read of an owner that has died: more than a socket holds.
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
    /// Slots that are held, and spares of those that were given back, for as long as it stays. Whoever has this lock
    /// takes no other.
    lease_table: Biased<LeaseTable<Buffer>>,
    state: Mutex<AttachmentState>,
    /// Held while packets are read, so that whoever has read them knows that they were heeded.
    receiving: Mutex<()>,
    arrived: Condvar,
    /// The owner has ended, or hung up.
    gone: AtomicBool,
    /// When that was heard of.
    disconnected_since: OnceLock<Instant>,
    /// Of the memory of the holdings.
    _reservation: Reservation,
}

/// A slot that was leased, as what a handle of it is made of.
#[derive(Debug)]
pub(crate) enum Leased {
    /// What was left when it was given back the last time.
    Recycled(Arc<Buffer>),
    /// A range of a segment.
    New(Slot, Arc<Map>),
}

#[derive(Debug)]
pub(crate) struct AttachmentState {
    segments: HashMap<u32, Arc<Map>>,
    watches: Vec<Watch>,
    /// Itself, for as long as it is to stay although nobody uses it, and to keep spares.
    pub(crate) kept_alive: Option<Arc<Attachment>>,
    /// How many slots were held, and how many may be, if it was expelled for that.
    expelled: Option<(u32, u32)>,
    /// Other pools of the same owner, by uid.
    pub(crate) introduced: HashMap<u64, Arc<Attachment>>,
    /// How many there can be.
    pub(crate) max_introduced: usize,
    /// When a segment was last asked for by somebody who does not wait.
    asked: Option<Instant>,
}

/// Begins to attach to a pool; `then` is run by whoever listens.
pub(crate) fn begin_at(
    socket_dir: &SocketDir,
    endpoint: &Endpoint,
    then: impl FnOnce(Result<Arc<Attachment>>) + Send + 'static,
) -> Result<Connecting> {
    let hello = Packet::new(Kind::Attach);
    let ours = endpoint.clone();
    let then = move |answer: Result<Answer>| then(answer.and_then(|answer| answered(ours, answer)));
    handshake::begin(socket_dir, endpoint, bytemuck::bytes_of(&hello), size_of::<Attached>(), then)
}

/// Makes an attachment of what the owner answered to a hello.
pub(crate) fn answered(endpoint: Endpoint, answer: Answer) -> Result<Arc<Attachment>> {
    let (kind, head) = Packet::parse(&answer.bytes)?;
    match kind {
        Kind::Attached => Attachment::new(endpoint, answer, MAX_INTRODUCED),
        Kind::Refused => {
            Err(Error::AttachRefused { pool: endpoint.name, why: Refusal::why(head.index) })
        }
        _ => Err(Error::BadMessage { what: "the owner's answer is none" }),
    }
}

impl Attachment {
    /// What an owner's welcome makes of this process; it may be lent so many other pools.
    pub(crate) fn new(
        endpoint: Endpoint,
        Answer { peer: owner, connection, bytes, mut fds }: Answer,
        max_introduced: usize,
    ) -> Result<Arc<Self>> {
        let attached = Attached::parse(&bytes)?;
        let infos = attached.segments();
        if fds.len() != 2 + infos.len() || attached.uid != endpoint.uid {
            return Err(Error::BadMessage { what: "the owner's answer does not add up" });
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
        // How many slots there are is what the owner says.
        let slots = attached.max_slots as usize * LeaseTable::<Buffer>::BYTES_PER_SLOT;
        let reservation = Budget::reserve(slots)?;
        let lease_table = LeaseTable::new(row, attached.max_slots, attached.max_leases);
        let state = AttachmentState {
            segments,
            watches: Vec::new(),
            kept_alive: None,
            expelled: None,
            introduced: HashMap::new(),
            max_introduced,
            asked: None,
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

    /// Whether leases still hold: the owner knows of this process, or is dead and can reuse nothing.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_disconnected() || self.owner.has_ended()
    }

    /// Whether the owner has hung up a moment ago and may be about to end: the kernel closes the
    /// sockets of a process that dies before it says that it is dead. Then look again.
    pub(crate) fn may_be_dying(&self) -> bool {
        self.is_disconnected() && !self.owner.has_ended() && self.has_just_disconnected()
    }

    /// Whether leases still hold, or will if the owner is about to end. One look: between two it may.
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

    /// Has it stay attached although nobody uses it. Not beyond the owner's death: owners come and
    /// go, and each would leave descriptors and mappings behind.
    pub(crate) fn keep_alive(self: &Arc<Self>) {
        let mut state = self.state();
        if !self.is_disconnected() {
            state.kept_alive = Some(self.clone());
            self.lease_table.lock().keep_buffers();
        }
    }

    /// Undoes [`Attachment::stay`]. Spares refer back here, so none are kept from now on.
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

    /// Notes where the bytes of a slot are in this process.
    pub(crate) fn note_address(&self, slot: u32, at: *const u8) {
        self.lease_table.lock().note_address(slot, at);
    }

    /// Leases a slot that a descriptor names. Waits a moment for a segment that is not here yet.
    pub(crate) fn lease(&self, slot: u32, serial: u64) -> Result<Leased> {
        self.lease_by(slot, SEGMENT_TIMEOUT, |leases| leases.by_serial(slot, serial))
    }

    /// As [`Attachment::lease`], but does not wait.
    pub(crate) fn try_lease(&self, slot: u32, serial: u64) -> Result<Leased> {
        self.lease_by(slot, Duration::ZERO, |leases| leases.by_serial(slot, serial))
    }

    /// Leases a slot that an entry of its owner's own ring names, for as long as that is `unchanged`.
    /// Does not wait.
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
        patience: Duration,
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
        let found = self.locate(slot, patience);
        let found = found.inspect_err(|_| {
            self.lease_table.lock().end_lease(slot);
        });
        found.map(|(socket_dir, map)| Leased::New(socket_dir, map))
    }

    /// As [`Attachment::try_lease_entry`], of a slot that was leased before. `None` if there is more to it.
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

    /// Where a slot is that is leased, as its owner says.
    fn socket_dir(&self, slot: u32) -> Option<Slot> {
        let [segment, offset, capacity] = self.location_words(slot)?;
        Some(Slot {
            index: slot,
            segment: SegmentId(u32::try_from(segment).ok()?),
            offset: usize::try_from(offset).ok()?,
            capacity: usize::try_from(capacity).ok()?,
        })
    }

    /// Whether its owner says that a slot is where it was.
    #[inline(always)]
    fn is_at(&self, buffer: &Buffer) -> bool {
        let Some(slot) = buffer.slot_ref().map(|slot_ref| slot_ref.slot) else { return false };
        // Word by word: what is compared as a whole is written to memory first, and waited for.
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

    /// The same, checked against what is mapped.
    fn locate(&self, slot: u32, patience: Duration) -> Result<(Slot, Arc<Map>)> {
        let lie = || Error::BadMessage { what: "a slot that lies in no segment" };
        let socket_dir = self.socket_dir(slot).ok_or_else(lie)?;
        let map = self.segment(socket_dir.segment.0, patience)?;
        if socket_dir.offset.checked_add(socket_dir.capacity).is_none_or(|end| end > map.len()) {
            return Err(lie());
        }
        Ok((socket_dir, map))
    }

    /// A segment that a descriptor names. One that is not here yet is asked for.
    fn segment(&self, number: u32, patience: Duration) -> Result<Arc<Map>> {
        let mut state = self.state();
        if let Some(map) = state.segments.get(&number) {
            return Ok(map.clone());
        }
        let none = Error::NoSuchSegment { pool: self.endpoint.name.clone(), segment: number };
        if patience.is_zero() {
            // It is on its way, most likely, and whoever does not wait may look very often.
            if state.asked.is_none_or(|asked| asked.elapsed() >= SEGMENT_RETRY) {
                state.asked = Some(Instant::now());
                self.request_segment(number);
            }
            return Err(none);
        }
        let start = Instant::now();
        let mut pause = SEGMENT_RETRY;
        while start.elapsed() < patience && !self.is_disconnected() {
            self.request_segment(number);
            let waited = self.arrived.wait_timeout(state, pause);
            let waited = waited.unwrap_or_else(PoisonError::into_inner);
            // Others that arrive are no reason to wait longer: there may be thousands.
            pause *= if waited.1.timed_out() { 2 } else { 1 };
            state = waited.0;
            if let Some(map) = state.segments.get(&number) {
                return Ok(map.clone());
            }
        }
        Err(none)
    }

    fn request_segment(&self, segment: u32) {
        let more = Packet::segment(Kind::SegmentRequest, segment, 0);
        let _ = packet::send(self.connection.as_fd(), bytemuck::bytes_of(&more), &[]);
    }

    /// Gives a lease back.
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

    /// Tells an owner that waits for a slot.
    #[cold]
    pub(crate) fn wake_owner(&self) {
        let wake = Packet::new(Kind::Wake);
        let _ = packet::send(self.connection.as_fd(), bytemuck::bytes_of(&wake), &[]);
    }

    /// Reads what the owner sent, up to `limit` packets.
    pub(crate) fn receive(&self, limit: usize) {
        let _listening = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0; 256];
        for _ in 0..limit {
            match packet::recv(self.connection.as_fd(), &mut bytes) {
                Ok((0, _)) => return self.owner_disconnected(),
                Ok((len, fds)) => self.handle(&bytes[..len], fds),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    // What was sent before a reset can still be read. A packet that is too long
                    // makes no sense; one that this process had no descriptors left for is
                    // asked for again when it is needed.
                    io::ErrorKind::ConnectionReset | io::ErrorKind::InvalidData => {}
                    _ if socket_dir::is_shortage(&error) => {}
                    _ => return self.owner_disconnected(),
                },
            }
        }
    }

    /// A packet that makes no sense is passed over: it cannot do harm.
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
                // Spares keep segments mapped, too.
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
        // Whoever sees this sees the segments that came before.
        self.gone.store(true, Ordering::Release);
        let watches = std::mem::take(&mut self.state().watches);
        drop(watches);
        self.arrived.notify_all();
        self.end_keep_alive();
    }
}

/// What is watched.
const CONNECTION: u64 = 0;
const OWNER: u64 = 1;

impl Served for Attachment {
    fn ready(self: Arc<Self>, token: u64) {
        if token == OWNER {
            // What it sent before it died is still there to be read.
            self.receive(LAST_PACKETS);
            self.owner_disconnected();
        } else {
            self.receive(PACKETS_AT_ONCE);
        }
    }
}
