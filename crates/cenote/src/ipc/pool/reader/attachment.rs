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
use crate::ipc::discovery::handshake::{Answer, Begun};
use crate::ipc::discovery::socket_dir::{Entry, Place};
use crate::ipc::discovery::{handshake, query};
use crate::ipc::lease::reader::{Leases, Refused, Shipped};
use crate::ipc::pool::owner::introduce::MAX_LENT;
use crate::ipc::pool::reader::lease_table::Holdings;
use crate::ipc::service_thread;
use crate::ipc::service_thread::{Served, Watch};
use crate::ipc::shared::fd_checks;
use crate::ipc::shared::wire::{Kind, MAX_SHARED, Packet, Refusal, Welcome, header, row};
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
    pub(crate) entry: Entry,
    pub(crate) owner: Peer,
    creator: Creator,
    max_slots: u32,
    header: Words,
    connection: Arc<GuardedSocket>,
    /// Slots that are held, and spares of those that were given back, for as long as it stays. Whoever has this lock
    /// takes no other.
    holdings: Biased<Holdings<Buffer>>,
    state: Mutex<State>,
    /// Held while packets are read, so that whoever has read them knows that they were heeded.
    listening: Mutex<()>,
    arrived: Condvar,
    /// The owner has ended, or hung up.
    gone: AtomicBool,
    /// When that was heard of.
    gone_since: OnceLock<Instant>,
    /// Of the memory of the holdings.
    _reservation: Reservation,
}

/// A slot that was leased, as what a handle of it is made of.
#[derive(Debug)]
pub(crate) enum Leased {
    /// What was left when it was given back the last time.
    Again(Arc<Buffer>),
    /// A range of a segment.
    New(Slot, Arc<Map>),
}

#[derive(Debug)]
pub(crate) struct State {
    segments: HashMap<u32, Arc<Map>>,
    watches: Vec<Watch>,
    /// Itself, for as long as it is to stay although nobody uses it, and to keep spares.
    pub(crate) stays: Option<Arc<Attachment>>,
    /// How many slots were held, and how many may be, if it was expelled for that.
    expelled: Option<(u32, u32)>,
    /// Other pools of the same owner, by uid.
    pub(crate) lent: HashMap<u64, Arc<Attachment>>,
    /// How many there can be.
    pub(crate) max_lent: usize,
    /// When a segment was last asked for by somebody who does not wait.
    asked: Option<Instant>,
}

/// Begins to attach to a pool; `then` is run by whoever listens.
pub(crate) fn begin_at(
    place: &Place,
    entry: &Entry,
    then: impl FnOnce(Result<Arc<Attachment>>) + Send + 'static,
) -> Result<Begun> {
    let hello = Packet::new(Kind::Hello);
    let ours = entry.clone();
    let then = move |answer: Result<Answer>| then(answer.and_then(|answer| answered(ours, answer)));
    handshake::begin(place, entry, bytemuck::bytes_of(&hello), size_of::<Welcome>(), then)
}

/// Makes an attachment of what the owner answered to a hello.
pub(crate) fn answered(entry: Entry, answer: Answer) -> Result<Arc<Attachment>> {
    let (kind, head) = Packet::parse(&answer.bytes)?;
    match kind {
        Kind::Welcome => Attachment::new(entry, answer, MAX_LENT),
        Kind::Refused => {
            Err(Error::AttachRefused { pool: entry.name, why: Refusal::why(head.index) })
        }
        _ => Err(Error::BadMessage { what: "the owner's answer is none" }),
    }
}

impl Attachment {
    /// What an owner's welcome makes of this process; it may be lent so many other pools.
    pub(crate) fn new(
        entry: Entry,
        Answer { peer: owner, connection, bytes, mut fds }: Answer,
        max_lent: usize,
    ) -> Result<Arc<Self>> {
        let welcome = Welcome::parse(&bytes)?;
        let infos = welcome.segments();
        if fds.len() != 2 + infos.len() || welcome.uid != entry.uid {
            return Err(Error::BadMessage { what: "the owner's answer does not add up" });
        }
        let segment_fds = fds.split_off(2);
        let header_len = header::words(welcome.max_slots);
        let row_len = row::words(welcome.max_slots);

        let row = fd_checks::open_row(fds.swap_remove(1), row_len)?;
        let header = fd_checks::open_header(&fds[0], header_len)?;
        let mut segments = HashMap::new();
        for (info, fd) in infos.iter().zip(&segment_fds) {
            segments.insert(info.index, Arc::new(fd_checks::open_segment(fd, info.len)?));
        }
        // How many slots there are is what the owner says.
        let berths = welcome.max_slots as usize * Holdings::<Buffer>::BYTES_PER_SLOT;
        let reservation = Budget::reserve(berths)?;
        let holdings = Holdings::new(row, welcome.max_slots, welcome.max_leases);
        let state = State {
            segments,
            watches: Vec::new(),
            stays: None,
            expelled: None,
            lent: HashMap::new(),
            max_lent,
            asked: None,
        };
        let attachment = Arc::new(Attachment {
            entry,
            owner,
            creator: Creator::this_process(),
            max_slots: welcome.max_slots,
            header,
            connection,
            holdings: Biased::new(holdings),
            state: Mutex::new(state),
            listening: Mutex::new(()),
            arrived: Condvar::new(),
            gone: AtomicBool::new(false),
            gone_since: OnceLock::new(),
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

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
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
            Err(Error::Forked { pool: self.entry.name.clone() })
        } else {
            Ok(())
        }
    }

    /// Whether leases still hold: the owner knows of this process, or is dead and can reuse nothing.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_gone() || self.owner.has_ended()
    }

    /// Whether the owner has hung up a moment ago and may be about to end: the kernel closes the
    /// sockets of a process that dies before it says that it is dead. Then look again.
    pub(crate) fn may_be_dying(&self) -> bool {
        self.is_gone() && !self.owner.has_ended() && self.has_just_gone()
    }

    /// Whether leases still hold, or will if the owner is about to end. One look: between two it may.
    pub(crate) fn may_serve(&self) -> bool {
        !self.is_gone() || self.has_just_gone() || self.owner.has_ended()
    }

    fn has_just_gone(&self) -> bool {
        self.gone_since.get().is_some_and(|since| since.elapsed() < EXIT_TIME)
    }

    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Has it stay attached although nobody uses it. Not beyond the owner's death: owners come and
    /// go, and each would leave descriptors and mappings behind.
    pub(crate) fn stay(self: &Arc<Self>) {
        let mut state = self.state();
        if !self.is_gone() {
            state.stays = Some(self.clone());
            self.holdings.lock().keep_spares();
        }
    }

    /// Undoes [`Attachment::stay`]. Spares refer back here, so none are kept from now on.
    pub(crate) fn let_go(&self) {
        if !self.is_inherited() {
            let mut state = self.state();
            let (stays, spares) = (state.stays.take(), self.holdings.lock().shut());
            let lent: Vec<_> = state.lent.values().cloned().collect();
            drop(state);
            lent.iter().for_each(|pool| pool.let_go());
            drop((stays, spares));
        }
    }

    #[inline(always)]
    fn serials(&self) -> &[AtomicU64] {
        &self.header.get()[header::SERIALS..]
    }

    /// Notes where the bytes of a slot are in this process.
    pub(crate) fn note(&self, slot: u32, at: *const u8) {
        self.holdings.lock().note(slot, at);
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
        let mut holdings = self.holdings.lock();
        let leased = holdings.lease(slot, self.serials(), lease);
        let leased = leased.map(|()| holdings.take_spare(slot));
        drop(holdings);
        let spare = leased.map_err(|why| why.into_error(&self.entry.name, slot, self.max_slots))?;
        if let Some(spare) = spare.filter(|spare| self.is_at(spare)) {
            return Ok(Leased::Again(spare));
        }
        let found = self.locate(slot, patience);
        let found = found.inspect_err(|_| {
            self.holdings.lock().end_lease(slot);
        });
        found.map(|(place, map)| Leased::New(place, map))
    }

    /// As [`Attachment::try_lease_entry`], of a slot that was leased before. `None` if there is more to it.
    #[inline(always)]
    pub(crate) fn lease_entry_again(
        &self,
        slot: u32,
        unchanged: impl Fn() -> bool,
    ) -> Option<Arc<Buffer>> {
        if self.is_inherited() || self.is_gone() {
            return None;
        }
        self.holdings.lock().lease_again(slot, unchanged, |spare| self.is_at(spare))
    }

    #[inline]
    fn check_usable(&self) -> Result<()> {
        if self.is_usable() {
            return Ok(());
        }
        let pool = self.entry.name.clone();
        Err(match self.state().expelled {
            Some((held, max)) => Error::Expelled { pool, held, max },
            None => Error::PoolClosed { pool, pid: self.owner.pid },
        })
    }

    /// Where a slot is that is leased, as its owner says.
    fn place(&self, slot: u32) -> Option<Slot> {
        let [segment, offset, capacity] = self.place_words(slot)?;
        Some(Slot {
            index: slot,
            segment: SegmentId(u32::try_from(segment).ok()?),
            offset: usize::try_from(offset).ok()?,
            capacity: usize::try_from(capacity).ok()?,
        })
    }

    /// Whether its owner says that a slot is where it was.
    #[inline(always)]
    fn is_at(&self, spare: &Buffer) -> bool {
        let Some(slot) = spare.slot_ref().map(|slot_ref| slot_ref.slot) else { return false };
        // Word by word: what is compared as a whole is written to memory first, and waited for.
        self.place_words(slot.index).is_some_and(|[segment, offset, capacity]| {
            segment == u64::from(slot.segment.0)
                && offset == slot.offset as u64
                && capacity == slot.capacity as u64
        })
    }

    #[inline(always)]
    fn place_words(&self, slot: u32) -> Option<[u64; header::WORDS_PER_PLACE]> {
        let at = header::places(self.max_slots) + header::WORDS_PER_PLACE * slot as usize;
        let words = self.header.get().get(at..at + header::WORDS_PER_PLACE)?;
        Some(std::array::from_fn(|n| words[n].load(Ordering::Relaxed)))
    }

    /// The same, checked against what is mapped.
    fn locate(&self, slot: u32, patience: Duration) -> Result<(Slot, Arc<Map>)> {
        let lie = || Error::BadMessage { what: "a slot that lies in no segment" };
        let place = self.place(slot).ok_or_else(lie)?;
        let map = self.segment(place.segment.0, patience)?;
        if place.offset.checked_add(place.capacity).is_none_or(|end| end > map.len()) {
            return Err(lie());
        }
        Ok((place, map))
    }

    /// A segment that a descriptor names. One that is not here yet is asked for.
    fn segment(&self, number: u32, patience: Duration) -> Result<Arc<Map>> {
        let mut state = self.state();
        if let Some(map) = state.segments.get(&number) {
            return Ok(map.clone());
        }
        let none = Error::NoSuchSegment { pool: self.entry.name.clone(), segment: number };
        if patience.is_zero() {
            // It is on its way, most likely, and whoever does not wait may look very often.
            if state.asked.is_none_or(|asked| asked.elapsed() >= SEGMENT_RETRY) {
                state.asked = Some(Instant::now());
                self.ask_for(number);
            }
            return Err(none);
        }
        let start = Instant::now();
        let mut pause = SEGMENT_RETRY;
        while start.elapsed() < patience && !self.is_gone() {
            self.ask_for(number);
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

    fn ask_for(&self, segment: u32) {
        let more = Packet::segment(Kind::More, segment, 0);
        let _ = packet::send(self.connection.as_fd(), bytemuck::bytes_of(&more), &[]);
    }

    /// Gives a lease back.
    pub(crate) fn release(&self, slot: u32) {
        if self.is_inherited() {
            return;
        }
        self.holdings.lock().end_lease(slot);
        if self.is_waited_for() {
            self.wake_owner();
        }
    }

    #[inline(always)]
    pub(crate) fn holdings(&self) -> &Biased<Holdings<Buffer>> {
        &self.holdings
    }

    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.header.get()[header::WAITING].load(Ordering::Relaxed) != 0
    }

    /// Tells an owner that waits for a slot.
    #[cold]
    pub(crate) fn wake_owner(&self) {
        let wake = Packet::new(Kind::Wake);
        let _ = packet::send(self.connection.as_fd(), bytemuck::bytes_of(&wake), &[]);
    }

    /// Reads what the owner sent, up to `limit` packets.
    pub(crate) fn listen(&self, limit: usize) {
        let _listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0; 256];
        for _ in 0..limit {
            match packet::recv(self.connection.as_fd(), &mut bytes) {
                Ok((0, _)) => return self.owner_gone(),
                Ok((len, fds)) => self.hear(&bytes[..len], fds),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    // What was sent before a reset can still be read. A packet that is too long
                    // makes no sense; one that this process had no descriptors left for is
                    // asked for again when it is needed.
                    io::ErrorKind::ConnectionReset | io::ErrorKind::InvalidData => {}
                    _ if query::is_shortage(&error) => {}
                    _ => return self.owner_gone(),
                },
            }
        }
    }

    /// A packet that makes no sense is passed over: it cannot do harm.
    fn hear(&self, bytes: &[u8], mut fds: Vec<OwnedFd>) {
        let Ok((kind, packet)) = Packet::parse(bytes) else { return };
        match (kind, &*fds) {
            (Kind::Lent, [_]) => {
                let name = &bytes[size_of::<Packet>()..];
                fds.pop().into_iter().for_each(|fd| self.borrow(packet.len, name, fd));
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
            (Kind::Gone, []) => {
                let mut state = self.state();
                let gone = state.segments.remove(&packet.index);
                // Spares keep segments mapped, too.
                let spares =
                    if gone.is_some() { self.holdings.lock().take_spares() } else { Vec::new() };
                drop(state);
                drop((gone, spares));
            }
            (Kind::Refused, []) => self.state().expelled = Refusal::too_many(packet),
            _ => {}
        }
    }

    fn owner_gone(&self) {
        let _ = self.gone_since.set(Instant::now());
        // Whoever sees this sees the segments that came before.
        self.gone.store(true, Ordering::Release);
        let watches = std::mem::take(&mut self.state().watches);
        drop(watches);
        self.arrived.notify_all();
        self.let_go();
    }
}

/// What is watched.
const CONNECTION: u64 = 0;
const OWNER: u64 = 1;

impl Served for Attachment {
    fn ready(self: Arc<Self>, token: u64) {
        if token == OWNER {
            // What it sent before it died is still there to be read.
            self.listen(LAST_PACKETS);
            self.owner_gone();
        } else {
            self.listen(PACKETS_AT_ONCE);
        }
    }
}
