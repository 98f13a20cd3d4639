//! What the lock of a pool protects: which slots there are, who holds them, who is attached.
//!
//! Everything here is short and never waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::error::Holder;
use crate::memory::select::NotGranted;
use crate::os::peer::Peer;
use crate::pool::allocator::{Allocator, SegmentId, Slot};
use crate::pool::attachers::Attachers;
use crate::pool::config::TensorPoolConfig;
use crate::pool::retire::Retired;
use crate::pool::rows::{RowId, Rows};
use crate::pool::segment::Segment;
use crate::pool::serve::Server;
use crate::pool::wire::row;
use crate::region::{Map, Words};
use crate::sync::AtomicU64;

/// What the lock of a pool protects.
#[derive(Debug)]
pub(crate) struct State<S> {
    pub(super) allocator: Allocator,
    pub(super) retired: Retired,
    pub(crate) rows: Rows<Row>,
    pub(crate) segments: HashMap<SegmentId, Segment>,
    pub(crate) attachers: Attachers,
    /// How others find the pool.
    pub(crate) server: Option<Server>,
    spares: Vec<Spare<S>>,
    /// When each retired slot was let go of by the owner.
    retired_at: Box<[Duration]>,
    /// Slots are overwritten before they can be reused.
    scrub: bool,
    pub(super) waiters: usize,
    /// The most slots that one attacher may hold.
    lease_limit: usize,
    pub(super) failures: u64,
    pub(super) not_granted: Vec<NotGranted>,
}

/// A spare, and the range of bytes it was made for.
#[derive(Debug)]
struct Spare<S> {
    place: Option<Slot>,
    spare: Option<S>,
}

/// A row, in the memory of whoever writes it.
#[derive(Debug)]
pub(crate) enum Row {
    Own(Arc<[AtomicU64]>),
    Peer(Words),
}

impl AsRef<[AtomicU64]> for Row {
    fn as_ref(&self) -> &[AtomicU64] {
        match self {
            Row::Own(words) => words,
            Row::Peer(words) => &words.get()[row::LEASES..],
        }
    }
}

/// A slot that was allocated.
#[derive(Debug)]
pub(crate) struct Granted<S> {
    pub(crate) slot: Slot,
    pub(crate) made: Made<S>,
}

/// What a handle of the slot is made of.
#[derive(Debug)]
pub(crate) enum Made<S> {
    /// What was left when this very range was given back the last time.
    Again(S),
    /// The memory of its segment.
    New(Arc<Map>),
}

impl<S> State<S> {
    pub(super) fn new(
        config: &TensorPoolConfig,
        max_slots: u32,
        own_row: Arc<[AtomicU64]>,
    ) -> Self {
        let mut rows = Rows::new();
        rows.insert(Row::Own(own_row));
        State {
            allocator: Allocator::new(max_slots, config.slot_alignment),
            retired: Retired::new(max_slots),
            rows,
            segments: HashMap::new(),
            attachers: Attachers::default(),
            server: None,
            spares: (0..max_slots).map(|_| Spare { place: None, spare: None }).collect(),
            retired_at: vec![Duration::ZERO; max_slots as usize].into(),
            scrub: config.scrub,
            waiters: 0,
            lease_limit: config.lease_limit(),
            failures: 0,
            not_granted: Vec::new(),
        }
    }

    pub(super) fn grant(&mut self, slot: Slot) -> Granted<S> {
        let spare = &mut self.spares[slot.index as usize];
        if spare.place == Some(slot)
            && let Some(again) = spare.spare.take()
        {
            return Granted { slot, made: Made::Again(again) };
        }
        // The range of an old spare is somebody else's by now; it would keep its segment mapped.
        *spare = Spare { place: Some(slot), spare: None };
        // The allocator hands out ranges of segments that were added, and no others.
        let map = self.segments[&slot.segment].map.clone();
        Granted { slot, made: Made::New(map) }
    }

    /// Whether the next slot of this size may need another segment, and one can be had. A loop
    /// over one size that has one slot at a time is not about to need more.
    pub(super) fn is_low(&self, len: usize, pool_size: usize) -> bool {
        let found = self.allocator.stats();
        found.slots > 1 && found.reserved - found.in_use < len && pool_size - found.reserved >= len
    }

    /// Keeps a spare for a slot; gives back the one it replaces, to be dropped without the lock.
    pub(super) fn keep(&mut self, slot: u32, spare: Option<S>) -> Option<S> {
        std::mem::replace(&mut self.spares[slot as usize].spare, spare)
    }

    pub(super) fn retire(&mut self, slot: u32, published: bool, serials: &[AtomicU64]) {
        if !published || self.retired.retire(slot, serials, &self.rows) {
            self.free(slot);
        } else {
            self.retired_at[slot as usize] = coarse_now();
        }
    }

    /// Looks again at up to `limit` slots that others held.
    pub(crate) fn sweep(&mut self, limit: usize, serials: &[AtomicU64]) {
        let State { allocator, retired, rows, segments, scrub, .. } = self;
        retired.sweep(limit, serials, rows, |slot| free(allocator, segments, *scrub, slot));
    }

    fn free(&mut self, slot: u32) {
        free(&mut self.allocator, &self.segments, self.scrub, slot);
    }

    pub(crate) fn sweep_all(&mut self, serials: &[AtomicU64]) {
        self.sweep(usize::MAX, serials);
    }

    /// Every spare there is.
    pub(super) fn take_spares(&mut self) -> Vec<S> {
        self.spares.iter_mut().filter_map(|spare| spare.spare.take()).collect()
    }

    /// Spares of slots that are not in use: they keep segments mapped.
    pub(super) fn drop_spares_of_unused(&mut self) -> Vec<S> {
        let allocator = &self.allocator;
        let unused = |index: &u32| allocator.slot(*index).is_none();
        let indices = (0..u32::try_from(self.spares.len()).unwrap_or(u32::MAX)).filter(unused);
        let indices: Vec<u32> = indices.collect();
        indices.into_iter().filter_map(|index| self.spares[index as usize].spare.take()).collect()
    }

    /// Who holds how many slots, and since when, counting only slots that the owner let go of.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let now = coarse_now();
        let peers: HashMap<RowId, &Peer> =
            self.attachers.attached().map(|(row, attacher)| (row, &attacher.peer)).collect();
        let mut found: HashMap<RowId, Holder> = HashMap::new();
        for slot in self.retired.iter() {
            let age = now.saturating_sub(self.retired_at[slot as usize]);
            for (row, ..) in self.rows.holders(slot) {
                let holder = found.entry(row).or_insert_with(|| holder(peers.get(&row).copied()));
                holder.retired_slots += 1;
                holder.longest = holder.longest.max(age);
            }
        }
        found.into_values().collect()
    }

    /// Drops the rows of attachers that are gone, though the service thread has not heard yet.
    pub(super) fn reap(&mut self, serials: &[AtomicU64]) {
        for attacher in self.attachers.take_gone() {
            attacher.row.and_then(|row| self.rows.remove(row));
        }
        self.sweep_all(serials);
    }

    /// Disconnects attachers that hold more slots than they may, which only a faulty one does.
    pub(super) fn expel(&mut self, serials: &[AtomicU64]) {
        let mut held: HashMap<RowId, usize> = HashMap::new();
        for slot in self.retired.iter() {
            self.rows.holders(slot).for_each(|(row, ..)| *held.entry(row).or_default() += 1);
        }
        held.retain(|_, slots| *slots > self.lease_limit);
        for attacher in self.attachers.expel(&held, self.lease_limit) {
            attacher.row.and_then(|row| self.rows.remove(row));
        }
        self.sweep_all(serials);
    }
}

/// Frees a slot that nobody holds any more.
fn free(
    allocator: &mut Allocator,
    segments: &HashMap<SegmentId, Segment>,
    scrub: bool,
    index: u32,
) {
    if scrub
        && let Some(slot) = allocator.slot(index)
        && let Some(segment) = segments.get(&slot.segment)
    {
        segment.scrub(slot.offset..slot.offset + slot.capacity);
    }
    allocator.free(index);
}

/// Cheap, and exact to a few milliseconds.
fn coarse_now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::try_from(now).unwrap_or_default()
}

/// A holder of nothing yet; without a peer it is this process itself.
fn holder(peer: Option<&Peer>) -> Holder {
    let (pid, program) = match peer {
        Some(peer) => (peer.pid, peer.program()),
        None => (std::process::id().cast_signed(), "this process".to_owned()),
    };
    Holder { pid, program, retired_slots: 0, longest: Duration::ZERO }
}
