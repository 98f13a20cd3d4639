//! The state that the lock of a pool protects: which slots exist, which rows hold them, which processes are attached.
//!
//! Every function here is short and never waits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::error::Holder;
use crate::ipc::lease::reclaim::RetiredSlots;
use crate::ipc::lease::rows;
use crate::ipc::lease::rows::{RowId, Rows};
use crate::ipc::pool::config::TensorPoolConfig;
use crate::ipc::pool::owner::adopted::Adopted;
use crate::ipc::pool::owner::growth_backoff::GrowthBackoff;
use crate::ipc::pool::owner::segment::Segment;
use crate::ipc::pool::owner::server::connections::Connections;
use crate::ipc::pool::owner::server::server::Server;
use crate::ipc::pool::owner::tlsf::allocator::Allocator;
use crate::ipc::shared::wire::{MAX_ADOPTED, row};
use crate::ipc::shared::words::Words;
use crate::memory::choose::selection::Wish;
use crate::memory::kind::TensorMemory;
use crate::memory::slot::{SegmentId, Slot};
use crate::sync::AtomicU64;
use crate::sys::mapping::Map;
use crate::sys::socket::peer;
use crate::sys::socket::peer::Peer;
use crate::tensor::buffer::Buffer;

/// How many slots more than its limit a reader can hold without being expelled, in a pool with many slots. A reader
/// that ends a lease and takes another while the owner counts is counted with both. A faulty reader gains no more
/// than this.
const LEASE_SLACK: usize = 64;

/// The state that the lock of a pool protects.
#[derive(Debug)]
pub(crate) struct OwnerState {
    pub(crate) allocator: Allocator,
    pub(crate) adopted: Adopted,
    pub(crate) retired: RetiredSlots,
    pub(crate) rows: Rows<LeaseRow>,
    pub(crate) segments: BTreeMap<SegmentId, Segment>,
    /// Segments that are no longer used. They are dropped without the lock.
    gone: Vec<Segment>,
    pub(crate) connections: Connections,
    /// The endpoint by which other processes find the pool.
    pub(crate) server: Option<Server>,
    /// For each slot, the buffer from its last use. Without them, the benchmark row
    /// `pool/alloc + drop, 6 and 7 MiB alternating` takes 102 % longer.
    kept: Vec<KeptBuffer>,
    /// The bytes of the deferred slots.
    deferred_bytes: usize,
    /// When each retired slot was first seen to be held by readers alone.
    retired_at: Box<[Duration]>,
    /// Free slots that must be scrubbed before they can be reused. `None` if the pool does not scrub.
    dirty: Option<Vec<u32>>,
    /// The number of slots that are being scrubbed.
    pub(crate) scrubbing: usize,
    pub(crate) waiters: usize,
    /// No buffers are kept any more.
    pub(crate) closed: bool,
    /// The most slots that one reader may hold.
    lease_limit: usize,
    /// The most slots that one reader can hold without being expelled.
    lease_bound: usize,
    /// Segments are DMA-BUFs, which devices may be using.
    devices: bool,
    /// Allocations under the lock.
    pub(crate) allocations: u64,
    pub(crate) failures: u64,
    /// Each wish at most once.
    pub(crate) not_granted: Vec<Wish>,
    pub(crate) growth_backoff: GrowthBackoff,
}

/// A kept buffer, and the slot for which it was made.
#[derive(Debug)]
struct KeptBuffer {
    slot: Option<Slot>,
    buffer: Option<Arc<Buffer>>,
}

/// A row, in the memory of the process that writes it.
#[derive(Debug)]
pub(crate) enum LeaseRow {
    Own(Arc<[AtomicU64]>),
    Reader(Words),
}

impl AsRef<[AtomicU64]> for LeaseRow {
    fn as_ref(&self) -> &[AtomicU64] {
        match self {
            LeaseRow::Own(words) => words,
            LeaseRow::Reader(words) => &words.get()[row::LEASES..],
        }
    }
}

/// An allocated slot.
#[derive(Debug)]
pub(crate) enum Granted {
    /// The buffer from the last use of the same range.
    Recycled(Arc<Buffer>),
    /// A range of a segment for which no buffer is kept.
    New(Slot, Arc<Map>),
}

impl OwnerState {
    pub(crate) fn new(
        config: &TensorPoolConfig,
        max_slots: u32,
        own_row: Arc<[AtomicU64]>,
    ) -> Self {
        let mut rows = Rows::new();
        rows.insert(LeaseRow::Own(own_row));
        OwnerState {
            allocator: config.allocator(max_slots),
            adopted: Adopted::new(max_slots),
            retired: RetiredSlots::new(max_slots + MAX_ADOPTED),
            rows,
            segments: BTreeMap::new(),
            gone: Vec::new(),
            connections: Connections::default(),
            server: None,
            kept: (0..max_slots).map(|_| KeptBuffer { slot: None, buffer: None }).collect(),
            deferred_bytes: 0,
            retired_at: vec![Duration::ZERO; (max_slots + MAX_ADOPTED) as usize].into(),
            dirty: config.scrub.then(|| Vec::with_capacity(max_slots as usize)),
            scrubbing: 0,
            waiters: 0,
            closed: false,
            lease_limit: config.lease_limit(),
            lease_bound: lease_bound(config.lease_limit(), max_slots as usize),
            devices: config.memory == TensorMemory::Dma,
            allocations: 0,
            failures: 0,
            not_granted: Vec::new(),
            growth_backoff: GrowthBackoff::default(),
        }
    }

    /// The private memory that each slot needs.
    pub(crate) const BYTES_PER_SLOT: usize = Allocator::BYTES_PER_SLOT
        + size_of::<KeptBuffer>()
        + size_of::<Duration>()
        + 3 * size_of::<u32>(); // retired, dirty

    pub(crate) fn grant(&mut self, slot: Slot) -> Granted {
        self.allocations += 1;
        let kept = &mut self.kept[slot.index as usize];
        if kept.slot == Some(slot)
            && let Some(buffer) = kept.buffer.take()
        {
            return Granted::Recycled(buffer);
        }
        // The range of an old buffer belongs to other slots by now, and the buffer would keep its segment mapped.
        *kept = KeptBuffer { slot: Some(slot), buffer: None };
        // The allocator hands out ranges of added segments only.
        Granted::New(slot, self.segments[&slot.segment].map.clone())
    }

    /// Whether the next slot of this length may need another segment, and the pool can have one. A loop that has one
    /// slot at a time needs no more; but a pool that has just begun is smaller than it will be.
    pub(crate) fn is_low(&self, len: usize, config: &TensorPoolConfig) -> bool {
        let found = self.allocator.stats();
        (found.slots > 1 || (found.slots == 1 && config.has_just_begun(found.reserved)))
            && !self.allocator.is_full()
            && self.allocator.free_for(len) < len
            && config.pool_size.saturating_sub(found.reserved) >= len
    }

    /// Keeps a buffer for a slot. Returns the buffer that it replaces, to be dropped without the lock. A buffer refers to
    /// the pool, so a closed pool keeps none: it would keep itself alive.
    pub(crate) fn keep(&mut self, slot: u32, buffer: Option<Arc<Buffer>>) -> Option<Arc<Buffer>> {
        if self.closed || self.adopted.has(slot) {
            return buffer;
        }
        std::mem::replace(&mut self.kept[slot as usize].buffer, buffer)
    }

    pub(crate) fn retire(&mut self, slot: u32, published: bool, serials: &[AtomicU64]) {
        if !published || self.retire_published(slot, serials) {
            free(&mut self.allocator, &mut self.adopted, &mut self.dirty, slot);
        }
        self.remove_adopted();
    }

    /// Whether a published slot can be reused at once. Otherwise nothing has changed, and the caller retires the slot. A
    /// slot that a device may use is always retired.
    pub(crate) fn claim_published(&self, slot: u32, serials: &[AtomicU64]) -> bool {
        !self.devices && self.retired.claim(slot, serials, &self.rows)
    }

    /// Retires a published slot. Returns whether it can be reused at once; otherwise it waits.
    pub(crate) fn retire_published(&mut self, slot: u32, serials: &[AtomicU64]) -> bool {
        let mut claimed = self.retired.retire(slot, serials, &self.rows);
        if claimed && self.is_busy(slot) {
            self.retired.wait(slot);
            claimed = false;
        }
        if !claimed {
            self.retired_at[slot as usize] = coarse_now();
        }
        claimed
    }

    /// Whether retired slots may be deferred: other processes are attached, and no allocation or scrubbing waits for the
    /// slots.
    pub(crate) fn defers(&self) -> bool {
        self.rows.len() > 1 && !self.devices && self.dirty.is_none() && self.waiters == 0
    }

    /// Retires a published slot without a scan. Returns whether it is time to scan: the batch is full, or the deferred slots
    /// are more than an eighth of the pool.
    pub(crate) fn defer(&mut self, slot: Slot, pool_size: usize) -> bool {
        self.deferred_bytes += slot.capacity;
        self.retired.defer(slot.index) || self.deferred_bytes > pool_size / 8
    }

    /// Frees the deferred slots that no reader holds.
    pub(crate) fn scan_deferred(&mut self, serials: &[AtomicU64]) {
        self.scan_deferred_into(serials, Err);
    }

    /// Scans the deferred slots. Passes the buffers of slots that no reader holds to `take`. Frees a slot if `take` returns
    /// its buffer.
    pub(crate) fn scan_deferred_into(
        &mut self,
        serials: &[AtomicU64],
        take: impl Fn(Arc<Buffer>) -> Result<(), Arc<Buffer>>,
    ) {
        let OwnerState { allocator, retired, rows, kept, retired_at, .. } = self;
        let mut now = None;
        retired.scan_deferred(serials, rows, |slot, unheld| {
            if !unheld {
                retired_at[slot as usize] = *now.get_or_insert_with(coarse_now);
                return;
            }
            // Slots of adopted memory are not deferred.
            let kept = &mut kept[slot as usize].buffer;
            match kept.take().map(&take) {
                Some(Ok(())) => return,
                Some(Err(buffer)) => *kept = Some(buffer),
                None => {}
            }
            allocator.free(slot);
        });
        self.deferred_bytes = 0;
    }

    /// Scans up to `limit` waiting slots again, and frees the ones that no reader holds.
    pub(crate) fn sweep(&mut self, limit: usize, serials: &[AtomicU64]) {
        if self.devices {
            return self.sweep_idle(limit, serials);
        }
        let OwnerState { allocator, adopted, retired, rows, dirty, .. } = self;
        retired.sweep(limit, serials, rows, |slot| free(allocator, adopted, dirty, slot));
        self.remove_adopted();
    }

    /// As `sweep`, for a pool of DMA-BUFs: slots that a device still uses go on waiting.
    #[cold]
    fn sweep_idle(&mut self, limit: usize, serials: &[AtomicU64]) {
        let mut claimed = Vec::new();
        self.retired.sweep(limit, serials, &self.rows, |slot| claimed.push(slot));
        for slot in claimed {
            match self.is_busy(slot) {
                true => self.retired.wait(slot),
                false => free(&mut self.allocator, &mut self.adopted, &mut self.dirty, slot),
            }
        }
        self.remove_adopted();
    }

    /// Whether a device reads or writes a slot. Adopted memory is not reused, so devices do not matter there.
    fn is_busy(&self, slot: u32) -> bool {
        let segment = |slot: u32| self.segments.get(&self.allocator.slot(slot)?.segment);
        self.devices
            && !self.adopted.has(slot)
            && segment(slot).and_then(|found| found.map.dmabuf()).is_some_and(|dma| !dma.is_idle())
    }

    /// A slot that is in use.
    pub(crate) fn slot(&self, index: u32) -> Option<Slot> {
        if !self.adopted.has(index) {
            return self.allocator.slot(index);
        }
        let segment = self.adopted.segment(index)?;
        let capacity = self.segments.get(&segment)?.len;
        Some(Slot { index, segment, offset: 0, capacity })
    }

    /// Removes the segments of adopted memory whose slots were freed.
    fn remove_adopted(&mut self) {
        while let Some(id) = self.adopted.pop_gone() {
            self.connections.remove_segment(id);
            self.gone.extend(self.segments.remove(&id));
        }
    }

    /// Whether readers may hold adopted memory that must be returned when they release it.
    pub(crate) fn has_returnable_leased(&self) -> bool {
        let segment = |slot: u32| self.segments.get(&self.adopted.segment(slot)?);
        let mut adopted = self.adopted.in_use().filter_map(segment);
        self.rows.len() > 1 && adopted.any(|segment| segment.map.keeps_value())
    }

    /// The segments that are no longer used, to be dropped without the lock.
    pub(crate) fn take_unused_segments(&mut self) -> Vec<Segment> {
        std::mem::take(&mut self.gone)
    }

    /// The number of segments that the pool made itself.
    pub(crate) fn own_segments(&self) -> usize {
        self.segments.len() - self.adopted.len()
    }

    pub(crate) fn sweep_all(&mut self, serials: &[AtomicU64]) {
        self.scan_deferred(serials);
        self.sweep(usize::MAX, serials);
    }

    /// Whether free slots wait to be scrubbed.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.as_ref().is_some_and(|dirty| !dirty.is_empty())
    }

    /// The slots to scrub, and their memory. They count as in use until they are freed.
    pub(crate) fn take_dirty(&mut self) -> Vec<(Slot, Arc<Map>)> {
        let with_map = |index: u32| {
            let slot = self.allocator.slot(index)?;
            Some((slot, self.segments.get(&slot.segment)?.map.clone()))
        };
        let found: Vec<_> =
            self.dirty.iter_mut().flat_map(|dirty| dirty.drain(..)).filter_map(with_map).collect();
        self.scrubbing += found.len();
        found
    }

    /// The number of slots of which this process has handles.
    pub(crate) fn own_slots(&self) -> usize {
        let others = self.retired.len() + self.dirty.as_ref().map_or(0, Vec::len) + self.scrubbing;
        (self.allocator.stats().slots as usize + self.adopted.len()).saturating_sub(others)
    }

    /// Takes all kept buffers.
    pub(crate) fn take_kept(&mut self) -> Vec<Arc<Buffer>> {
        self.kept.iter_mut().filter_map(|buffer| buffer.buffer.take()).collect()
    }

    /// Takes the kept buffers of slots that are not in use: they keep segments mapped.
    pub(crate) fn take_kept_of_unused(&mut self) -> Vec<Arc<Buffer>> {
        let allocator = &self.allocator;
        let unused = |index: &u32| allocator.slot(*index).is_none();
        let indices = (0..u32::try_from(self.kept.len()).unwrap_or(u32::MAX)).filter(unused);
        let indices: Vec<u32> = indices.collect();
        indices.into_iter().filter_map(|index| self.kept[index as usize].buffer.take()).collect()
    }

    /// The processes that hold slots. Those with most retired slots come first. [`with_programs`] adds their programs, which
    /// takes too long for the lock.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        let mut found = self.processes();
        found.retain(|holder| holder.slots > 0);
        found
    }

    /// This process and all readers, in the order of [`holders`](OwnerState::holders), also without any slot.
    pub(crate) fn processes(&self) -> Vec<Holder> {
        let now = coarse_now();
        let peers: HashMap<RowId, &Peer> =
            self.connections.attached().map(|(row, connection)| (row, &connection.peer)).collect();
        let holder = |(id, row)| self.holder(row, peers.get(&id).copied(), now);
        let mut found: Vec<Holder> = self.rows.iter().map(holder).collect();
        found.sort_by_key(|holder| Reverse((holder.retired_slots, holder.slots)));
        found
    }

    /// The numbers of all slots in use.
    fn in_use(&self) -> impl Iterator<Item = u32> {
        self.allocator.in_use().chain(self.adopted.in_use())
    }

    /// What one row holds. The row of this process has no peer.
    fn holder(&self, row: &LeaseRow, peer: Option<&Peer>, now: Duration) -> Holder {
        let retired = self.retired.waiting().filter(|slot| rows::holds(row, *slot));
        let ages = retired.map(|slot| now.saturating_sub(self.retired_at[slot as usize]));
        let (retired_slots, longest) =
            ages.fold((0, Duration::ZERO), |(slots, longest), age| (slots + 1, longest.max(age)));
        let slots = match row {
            LeaseRow::Own(_) => self.own_slots() + retired_slots,
            LeaseRow::Reader(_) => self.in_use().filter(|slot| rows::holds(row, *slot)).count(),
        };
        let (pid, program) = match peer {
            Some(peer) => (peer.pid, String::new()),
            None => (std::process::id().cast_signed(), "this process".to_owned()),
        };
        Holder { pid, program, slots, retired_slots, longest }
    }

    /// Drops the rows of readers that have ended, before the service thread notices.
    pub(crate) fn reap(&mut self, serials: &[AtomicU64]) {
        for connection in self.connections.take_ended() {
            connection.row.and_then(|row| self.rows.remove(row));
        }
        self.sweep_all(serials);
    }

    /// Disconnects readers that hold many more slots than their limit. Only a faulty reader does.
    pub(crate) fn expel(&mut self, serials: &[AtomicU64]) {
        let mut held: HashMap<RowId, usize> = HashMap::new();
        for slot in self.retired.iter() {
            self.rows.holders(slot).for_each(|row| *held.entry(row).or_default() += 1);
        }
        held.retain(|_, slots| *slots > self.lease_bound);
        for connection in self.connections.expel(&held, self.lease_limit) {
            connection.row.and_then(|row| self.rows.remove(row));
        }
        self.sweep_all(serials);
    }
}

/// How many slots a reader can hold without being expelled: in a small pool, at most half of the slots above its limit.
fn lease_bound(limit: usize, max_slots: usize) -> usize {
    limit.saturating_add(LEASE_SLACK.min(max_slots.saturating_sub(limit) / 2))
}

/// Frees a slot that no process holds, or marks it for scrubbing, which takes too long for the lock.
fn free(
    allocator: &mut Allocator,
    adopted: &mut Adopted,
    dirty: &mut Option<Vec<u32>>,
    index: u32,
) {
    match dirty {
        _ if adopted.has(index) => adopted.free(index),
        Some(dirty) => dirty.push(index),
        None => allocator.free(index),
    }
}

/// Adds the program names of processes that have none yet.
pub(crate) fn with_programs(mut holders: Vec<Holder>) -> Vec<Holder> {
    for holder in holders.iter_mut().filter(|holder| holder.program.is_empty()) {
        holder.program = peer::program(holder.pid);
    }
    holders
}

/// A cheap clock, exact to a few milliseconds.
fn coarse_now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::try_from(now).unwrap_or_default()
}
