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
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::os::fork::{self, GuardedSocket};
use crate::os::packet;
use crate::os::peer::Peer;
use crate::pool::allocator::{SegmentId, Slot};
use crate::pool::files;
use crate::pool::greeting::{self, Answer, Begun};
use crate::pool::held::HeldSlots;
use crate::pool::lease::{Leases, Refused, Shipped};
use crate::pool::place::{Entry, Place};
use crate::pool::service::{self, Served, Watch};
use crate::pool::wire::{Kind, MAX_SHARED, Packet, Refusal, Welcome, header, row};
use crate::region::{Map, Words};
use crate::sync::Ordering;

/// How long a segment that a descriptor names may take to arrive.
const SEGMENT: Duration = Duration::from_secs(1);

/// After how long it is asked for again, and then after twice as long each time: an owner sends
/// nothing to somebody with much unread, or when the system has no room for more descriptors.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// The most segments that an owner can make this process map: more than it has at a time, because
/// word of one that is gone may be late, or lost.
const MAX_MAPPED: usize = 4 * MAX_SHARED;

/// How many packets are read before others have their turn.
const PACKETS_AT_ONCE: usize = 64;

/// How many are read of an owner that has died: more than a socket holds.
const LAST_PACKETS: usize = 1 << 12;

/// A pool of another process.
#[derive(Debug)]
pub(crate) struct Attachment<S> {
    pub(crate) entry: Entry,
    pub(crate) owner: Peer,
    epoch: u64,
    max_slots: u32,
    max_leases: u32,
    header: Words,
    row: Words,
    connection: Arc<GuardedSocket>,
    state: Mutex<State<S>>,
    arrived: Condvar,
    /// The owner has ended, or hung up.
    gone: AtomicBool,
}

#[derive(Debug)]
struct State<S> {
    segments: HashMap<u32, Arc<Map>>,
    held: HeldSlots<S>,
    watches: Vec<Watch>,
    /// Itself, for as long as it is to stay although nobody uses it, and to keep spares.
    stays: Option<Arc<Attachment<S>>>,
    /// How many slots were held, and how many may be, if it was expelled for that.
    expelled: Option<(u32, u32)>,
}

/// Begins to attach to a pool; `then` runs on the service thread.
pub(crate) fn begin_at<S: Send + 'static>(
    place: &Place,
    entry: &Entry,
    then: impl FnOnce(Result<Arc<Attachment<S>>>) + Send + 'static,
) -> Result<Begun> {
    let hello = Packet::new(Kind::Hello);
    let ours = entry.clone();
    let then = move |answer: Result<Answer>| then(answer.and_then(|answer| answered(ours, answer)));
    greeting::begin(place, entry, bytemuck::bytes_of(&hello), size_of::<Welcome>(), then)
}

/// Makes an attachment of what the owner answered to a hello.
pub(super) fn answered<S: Send + 'static>(
    entry: Entry,
    answer: Answer,
) -> Result<Arc<Attachment<S>>> {
    let (kind, head) = Packet::parse(&answer.bytes)?;
    match kind {
        Kind::Welcome => Attachment::new(entry, answer),
        Kind::Refused => {
            Err(Error::AttachRefused { pool: entry.name, why: Refusal::why(head.index) })
        }
        _ => Err(Error::BadMessage { what: "the owner's answer is none" }),
    }
}

impl<S: Send + 'static> Attachment<S> {
    fn new(
        entry: Entry,
        Answer { peer: owner, connection, bytes, mut fds }: Answer,
    ) -> Result<Arc<Self>> {
        let welcome = Welcome::parse(&bytes)?;
        let infos = welcome.segments();
        if fds.len() != 2 + infos.len() || welcome.uid != entry.uid {
            return Err(Error::BadMessage { what: "the owner's answer does not add up" });
        }
        let segment_fds = fds.split_off(2);
        let header_len = header::words(welcome.max_slots);
        let row_len = row::words(welcome.max_slots);

        let row = files::open_row(fds.swap_remove(1), row_len)?;
        let header = files::open_header(&fds[0], header_len)?;
        let mut segments = HashMap::new();
        for (info, fd) in infos.iter().zip(&segment_fds) {
            segments.insert(info.index, files::open_segment(fd, info.len)?);
        }
        let state = State {
            segments,
            held: HeldSlots::new(),
            watches: Vec::new(),
            stays: None,
            expelled: None,
        };
        let attachment = Arc::new(Attachment {
            entry,
            owner,
            epoch: fork::epoch(),
            max_slots: welcome.max_slots,
            max_leases: welcome.max_leases,
            header,
            row,
            connection,
            state: Mutex::new(state),
            arrived: Condvar::new(),
            gone: AtomicBool::new(false),
        });
        attachment.watch()?;
        Ok(attachment)
    }

    fn watch(self: &Arc<Self>) -> Result<()> {
        let error = |source| Error::os("watching a socket", source);
        let served: Weak<dyn Served> = Arc::downgrade(&(self.clone() as Arc<dyn Served>));
        let mut watches = Vec::new();
        if let Some(pidfd) = &self.owner.pidfd {
            watches.push(service::watch(pidfd, served.clone(), OWNER).map_err(error)?);
        }
        watches.push(service::watch(&self.connection, served, CONNECTION).map_err(error)?);
        self.state().watches = watches;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        // No code under this lock panics between two halves of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process is a forked child of the one that attached.
    pub(crate) fn inherited(&self) -> bool {
        self.epoch != fork::epoch()
    }

    pub(crate) fn check_process(&self) -> Result<()> {
        if self.inherited() { Err(Error::Forked { pool: self.entry.name.clone() }) } else { Ok(()) }
    }

    /// Whether leases still hold: the owner knows of this process, or is dead and can reuse nothing.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_gone() || self.owner.has_ended()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Has it stay attached although nobody uses it. Not beyond the owner's death: owners come and
    /// go, and each would leave descriptors and mappings behind.
    pub(crate) fn stay(self: &Arc<Self>) {
        let mut state = self.state();
        if !self.is_gone() {
            state.stays = Some(self.clone());
        }
    }

    /// Undoes [`Attachment::stay`]. Spares refer back here, so none are kept from now on.
    pub(crate) fn let_go(&self) {
        if !self.inherited() {
            let mut state = self.state();
            let (stays, spares) = (state.stays.take(), state.held.take_spares());
            drop(state);
            drop((stays, spares));
        }
    }

    fn leases(&self) -> Leases<'_, Shipped> {
        Leases::new(&self.row.get()[row::LEASES..], &self.header.get()[header::SERIALS..])
    }

    /// Leases a slot that a descriptor names. Tells where it is, and gives the spare that was left
    /// for it.
    pub(crate) fn lease(&self, slot: u32, serial: u64) -> Result<(Slot, Arc<Map>, Option<S>)> {
        self.lease_by(slot, |leases| leases.by_serial(slot, serial))
    }

    /// Leases a slot that an entry of its owner's own ring names, for as long as that is `unchanged`.
    pub(crate) fn lease_entry(
        &self,
        slot: u32,
        unchanged: impl Fn() -> bool,
    ) -> Result<(Slot, Arc<Map>, Option<S>)> {
        self.lease_by(slot, |leases| leases.by_entry(slot, unchanged))
    }

    fn lease_by(
        &self,
        slot: u32,
        lease: impl FnOnce(Leases<'_, Shipped>) -> Result<(), Refused>,
    ) -> Result<(Slot, Arc<Map>, Option<S>)> {
        self.check_process()?;
        self.check_usable()?;
        self.count(slot)?;
        let refused = |why: Refused| why.into_error(&self.entry.name, slot, self.max_slots);
        let leased = lease(self.leases()).map_err(refused);
        let found =
            leased.and_then(|()| self.locate(slot).inspect_err(|_| self.leases().release(slot)));
        let mut state = self.state();
        let (place, map) = found.inspect_err(|_| state.held.uncount(slot))?;
        let spare = state.held.take_spare(slot);
        Ok((place, map, spare))
    }

    fn check_usable(&self) -> Result<()> {
        if self.is_usable() {
            return Ok(());
        }
        let pool = self.entry.name.clone();
        Err(match self.state().expelled {
            Some((held, max)) => Error::Expelled { pool, held, max },
            None => {
                let why = "its owner has disconnected this process";
                Error::AttachRefused { pool, why }
            }
        })
    }

    fn count(&self, slot: u32) -> Result<()> {
        let pool = || self.entry.name.clone();
        if slot >= self.max_slots {
            return Err(Refused::NoSuchSlot.into_error(&pool(), slot, self.max_slots));
        }
        if !self.state().held.count(slot, self.max_leases) {
            return Err(Error::TooManyLeases { pool: pool(), max: self.max_leases });
        }
        Ok(())
    }

    /// Where a slot is that is leased, as its owner says, checked against what is mapped.
    fn locate(&self, slot: u32) -> Result<(Slot, Arc<Map>)> {
        let at = header::places(self.max_slots) + header::WORDS_PER_PLACE * slot as usize;
        let word =
            |n: usize| self.header.get().get(at + n).map_or(0, |w| w.load(Ordering::Relaxed));
        let lie = || Error::BadMessage { what: "a slot that lies in no segment" };
        let segment = u32::try_from(word(0)).map_err(|_| lie())?;
        let offset = usize::try_from(word(1)).map_err(|_| lie())?;
        let capacity = usize::try_from(word(2)).map_err(|_| lie())?;
        let map = self.segment(segment)?;
        if offset.checked_add(capacity).is_none_or(|end| end > map.len()) {
            return Err(lie());
        }
        Ok((Slot { index: slot, segment: SegmentId(segment), offset, capacity }, map))
    }

    /// A segment that a descriptor names. One that is not here yet is asked for.
    fn segment(&self, number: u32) -> Result<Arc<Map>> {
        let mut state = self.state();
        if let Some(map) = state.segments.get(&number) {
            return Ok(map.clone());
        }
        let more = Packet::segment(Kind::More, number, 0);
        let start = Instant::now();
        let mut pause = ASK_AGAIN;
        while start.elapsed() < SEGMENT && !self.is_gone() {
            let _ = packet::send(self.connection.as_fd(), bytemuck::bytes_of(&more), &[]);
            let waited = self.arrived.wait_timeout(state, pause);
            pause *= 2;
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if let Some(map) = state.segments.get(&number) {
                return Ok(map.clone());
            }
        }
        Err(Error::NoSuchSegment { pool: self.entry.name.clone(), segment: number })
    }

    /// Gives a lease back, and leaves a spare for the next one on the slot.
    pub(crate) fn release(&self, slot: u32, spare: Option<S>) {
        if self.inherited() {
            return;
        }
        // Before the count sinks: the row must never show more than this process may have.
        self.leases().release(slot);
        let mut state = self.state();
        state.held.uncount(slot);
        let old = match state.stays {
            Some(_) => state.held.keep(slot, spare),
            None => spare,
        };
        drop(state);
        drop(old);
        self.wake_owner();
    }

    /// Tells an owner that waits for a slot.
    fn wake_owner(&self) {
        if self.header.get()[header::WAITING].load(Ordering::Relaxed) != 0 {
            let wake = Packet::new(Kind::Wake);
            let _ = packet::send(self.connection.as_fd(), bytemuck::bytes_of(&wake), &[]);
        }
    }

    /// Reads what the owner sent, up to `limit` packets.
    fn listen(&self, limit: usize) {
        let mut bytes = [0; 64];
        for _ in 0..limit {
            match packet::recv(self.connection.as_fd(), &mut bytes) {
                Ok((0, _)) => return self.owner_gone(),
                Ok((len, fds)) => self.hear(&bytes[..len], &fds),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    // What was sent before a reset can still be read. A packet that is too long
                    // makes no sense; one that this process had no descriptors left for is
                    // asked for again when it is needed.
                    io::ErrorKind::ConnectionReset | io::ErrorKind::InvalidData => {}
                    _ => return self.owner_gone(),
                },
            }
        }
    }

    /// A packet that makes no sense is passed over: it cannot do harm.
    fn hear(&self, bytes: &[u8], fds: &[OwnedFd]) {
        let Ok((kind, packet)) = Packet::parse(bytes) else { return };
        match (kind, fds) {
            (Kind::Segment, [fd]) => {
                if let Ok(map) = files::open_segment(fd, packet.len) {
                    let mut state = self.state();
                    if state.segments.len() < MAX_MAPPED {
                        state.segments.entry(packet.index).or_insert(map);
                    }
                    drop(state);
                    self.arrived.notify_all();
                }
            }
            (Kind::Gone, []) => {
                let mut state = self.state();
                let gone = state.segments.remove(&packet.index);
                // Spares keep segments mapped, too.
                let spares = if gone.is_some() { state.held.take_spares() } else { Vec::new() };
                drop(state);
                drop((gone, spares));
            }
            (Kind::Refused, []) => self.state().expelled = Refusal::too_many(packet),
            _ => {}
        }
    }

    fn owner_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
        let watches = std::mem::take(&mut self.state().watches);
        drop(watches);
        self.arrived.notify_all();
        self.let_go();
    }
}

/// What is watched.
const CONNECTION: u64 = 0;
const OWNER: u64 = 1;

impl<S: Send + 'static> Served for Attachment<S> {
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
