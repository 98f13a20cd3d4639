//! The way home of a pooled buffer: which slot of which pool it is, and who takes it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::memory::TensorMemory;
use crate::memory::select::{Origin, Selection};
use crate::memory::storage::Storage;
use crate::pool::allocator::{SegmentId, Slot};
use crate::pool::attachment::Attachment;
use crate::pool::owner::{Owner, Spared};
use crate::pool::state::{Granted, Made};
use crate::region::{Access, Map, Region};
use crate::tensor::buffer::{Buffer, Handle};

/// What a pool keeps for a slot between two uses.
pub(crate) type Spare = Arc<Buffer>;

/// A slot that a buffer occupies.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) pool: PoolRef,
    /// The slot, and the part of its segment that is the buffer's region.
    pub(crate) slot: Slot,
    /// The serial under which the slot was leased. An owner's slot has the pool's.
    lease_serial: AtomicU64,
}

impl Spared for Spare {
    fn slot(&self) -> Slot {
        // A spare has a home: it came from there.
        let nowhere =
            Slot { index: u32::MAX, segment: SegmentId(u32::MAX), offset: 0, capacity: 0 };
        self.home().map_or(nowhere, |home| home.slot)
    }
}

/// How this process has the slot.
#[derive(Debug, Clone)]
pub(crate) enum PoolRef {
    /// It allocated it.
    Allocated(Arc<Owner<Spare>>),
    /// It leased it from itself, by descriptor.
    OwnLease(Arc<Owner<Spare>>),
    /// It leased it from another process.
    Leased(Arc<Attachment<Spare>>),
}

impl Home {
    /// The serial for a descriptor of the slot's content.
    pub(crate) fn publish(&self) -> u64 {
        match &self.pool {
            PoolRef::Allocated(owner) => owner.publish(self.slot.index),
            _ => self.lease_serial.load(Ordering::Relaxed),
        }
    }

    /// An error in a forked child, which has neither slot nor lease.
    pub(crate) fn check_process(&self) -> Result<()> {
        match &self.pool {
            PoolRef::Allocated(owner) | PoolRef::OwnLease(owner) => owner.check_process(),
            PoolRef::Leased(attachment) => attachment.check_process(),
        }
    }

    /// Whether others can attach to the pool: its owner lives.
    pub(crate) fn is_attachable(&self) -> bool {
        match &self.pool {
            PoolRef::Allocated(_) | PoolRef::OwnLease(_) => true,
            PoolRef::Leased(attachment) => !attachment.is_gone(),
        }
    }

    pub(crate) fn uid(&self) -> u64 {
        match &self.pool {
            PoolRef::Allocated(owner) | PoolRef::OwnLease(owner) => owner.entry.uid,
            PoolRef::Leased(attachment) => attachment.entry.uid,
        }
    }

    pub(crate) fn lease_again(&self, slot: Slot, serial: u64) -> bool {
        self.lease_serial.store(serial, Ordering::Relaxed);
        self.slot == slot
    }

    /// Gives the slot back.
    pub(crate) fn give_back(&self, published: bool) {
        match &self.pool {
            PoolRef::Allocated(owner) => owner.give_back(self.slot.index, None, published),
            PoolRef::OwnLease(owner) => owner.release(self.slot.index),
            PoolRef::Leased(attachment) => attachment.release(self.slot.index, None),
        }
    }

    /// Gives back the slot, and the buffer itself, which nobody has a handle of any more.
    #[inline]
    pub(crate) fn recycle(buffer: Spare) {
        let Some(home) = buffer.home() else { return };
        let slot = home.slot.index;
        match home.pool.clone() {
            PoolRef::Allocated(owner) if buffer.is_published() => {
                owner.give_back(slot, Some(buffer), true);
            }
            PoolRef::Allocated(owner) => owner.offer(buffer),
            PoolRef::Leased(attachment) => attachment.release(slot, Some(buffer)),
            PoolRef::OwnLease(owner) => owner.release(slot),
        }
    }
}

/// The buffer of a slot that was just allocated.
#[inline]
pub(crate) fn allocated(owner: &Arc<Owner<Spare>>, granted: Granted<Spare>) -> Result<Handle> {
    let Granted { slot, made } = granted;
    let map = match made {
        Made::Again(spare) => {
            spare.renew();
            return Ok(Handle::of(spare));
        }
        Made::New(map) => map,
    };
    let range = slot.offset..slot.offset + slot.capacity;
    let home =
        Home { pool: PoolRef::Allocated(owner.clone()), slot, lease_serial: AtomicU64::new(0) };
    region(map, range, Access::Write, home)
}

/// The buffer of a slot that was just leased, read-only.
pub(crate) fn leased(
    pool: PoolRef,
    slot: Slot,
    serial: u64,
    map: Arc<Map>,
    spare: Option<Spare>,
) -> Result<Handle> {
    if let Some(spare) = spare.filter(|spare| spare.lease_again(slot, serial)) {
        return Ok(Handle::of(spare));
    }
    let range = slot.offset..slot.offset + slot.capacity;
    region(map, range, Access::Read, Home { pool, slot, lease_serial: AtomicU64::new(serial) })
}

/// A pooled buffer over part of a segment.
#[allow(unsafe_code, reason = "slots of one segment share a mapping")]
fn region(
    map: Arc<Map>,
    range: std::ops::Range<usize>,
    access: Access,
    home: Home,
) -> Result<Handle> {
    let (start, end, len) = (range.start as i128, range.end as i128, map.len());
    // SAFETY: to write: the allocator hands out disjoint ranges, and this one was handed out to
    // `home` and comes back when the buffer is dropped, so nobody else has a region over it. To
    // read: the slot is leased by `home`, so its owner does not reuse it, and its bytes do not
    // change. The range is the slot's: in this process the allocator says so, elsewhere the
    // owner's header, and the owner is trusted for the content of its bytes.
    let region = unsafe { Region::part(map, range, access) };
    let region = region.ok_or(Error::OutOfBuffer { start, end, len })?;
    let storage =
        Storage { region, memory: TensorMemory::Shm, stable: true, fd: None, _reservation: None };
    Ok(Handle::pooled(storage, Selection::given(TensorMemory::Shm, Origin::Pooled), home))
}
