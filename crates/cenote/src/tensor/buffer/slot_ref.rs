//! The way home of a pooled buffer: which slot of which pool it is, and who takes it back.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ipc::pool::owner::Owner;
use crate::ipc::pool::owner::state::Granted;
use crate::ipc::pool::owner::tlsf::allocator::{SegmentId, Slot};
use crate::ipc::pool::reader::attachment::{Attachment, Leased};
use crate::ipc::pool::spared::Spared;
use crate::memory::dma;
use crate::memory::kind::TensorMemory;
use crate::memory::region::Region;
use crate::memory::selection::{Origin, Selection};
use crate::memory::storage::Storage;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::sys::mapping::{Access, Map};
use crate::tensor::buffer::Buffer;
use crate::tensor::buffer::handle::Handle;

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
    /// The bytes that were asked for, of a slot that was allocated.
    len: AtomicUsize,
}

impl Spared for Buffer {
    #[inline]
    fn slot(&self) -> Slot {
        // A spare has a home: it came from there.
        let nowhere =
            Slot { index: u32::MAX, segment: SegmentId(u32::MAX), offset: 0, capacity: 0 };
        self.home().map_or(nowhere, |home| home.slot)
    }

    #[inline]
    fn len(&self) -> usize {
        self.home().map_or(0, |home| home.len.load(Ordering::Relaxed))
    }

    #[inline]
    fn bytes(&self) -> *const u8 {
        self.storage().region.start().as_ptr()
    }

    #[inline]
    fn owner(&self) -> Option<&Arc<Owner<Buffer>>> {
        match &self.home()?.pool {
            PoolRef::Allocated(owner) => Some(owner),
            _ => None,
        }
    }

    #[inline]
    fn attachment(&self) -> Option<&Arc<Attachment<Buffer>>> {
        match &self.home()?.pool {
            PoolRef::Leased(attachment) => Some(attachment),
            _ => None,
        }
    }
}

/// How this process has the slot.
#[derive(Debug, Clone)]
pub(crate) enum PoolRef {
    /// It allocated it.
    Allocated(Arc<Owner<Buffer>>),
    /// It is memory that the pool did not make.
    Adopted(Arc<Owner<Buffer>>),
    /// It leased it from itself, by descriptor.
    OwnLease(Arc<Owner<Buffer>>),
    /// It leased it from another process.
    Leased(Arc<Attachment<Buffer>>),
}

impl Home {
    fn new(pool: PoolRef, slot: Slot, lease_serial: u64, len: usize) -> Home {
        Home { pool, slot, lease_serial: AtomicU64::new(lease_serial), len: AtomicUsize::new(len) }
    }

    /// The serial for a descriptor of the slot's content.
    #[inline]
    pub(crate) fn publish(&self) -> u64 {
        match &self.pool {
            PoolRef::Allocated(owner) | PoolRef::Adopted(owner) => owner.publish(self.slot.index),
            _ => self.lease_serial.load(Ordering::Relaxed),
        }
    }

    /// An error in a forked child, which has neither slot nor lease.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        match &self.pool {
            PoolRef::Allocated(owner) | PoolRef::Adopted(owner) | PoolRef::OwnLease(owner) => {
                owner.check_process()
            }
            PoolRef::Leased(attachment) => attachment.check_process(),
        }
    }

    /// Whether others can attach to the pool: its owner lives, and has not closed it.
    #[inline]
    pub(crate) fn is_attachable(&self) -> bool {
        match &self.pool {
            PoolRef::Allocated(owner) | PoolRef::Adopted(owner) | PoolRef::OwnLease(owner) => {
                owner.is_open()
            }
            PoolRef::Leased(attachment) => !attachment.is_gone(),
        }
    }

    /// The pool, if this process owns it.
    #[inline]
    pub(crate) fn owned_by(&self) -> Option<&Arc<Owner<Buffer>>> {
        match &self.pool {
            PoolRef::Allocated(owner) | PoolRef::Adopted(owner) | PoolRef::OwnLease(owner) => {
                Some(owner)
            }
            PoolRef::Leased(_) => None,
        }
    }

    /// Whether the slot was allocated here, by this pool.
    #[inline]
    pub(crate) fn is_allocated_by(&self, owner: &Arc<Owner<Buffer>>) -> bool {
        matches!(&self.pool, PoolRef::Allocated(ours) if Arc::ptr_eq(ours, owner))
    }

    #[inline]
    pub(crate) fn uid(&self) -> u64 {
        match &self.pool {
            PoolRef::Allocated(owner) | PoolRef::Adopted(owner) | PoolRef::OwnLease(owner) => {
                owner.entry.uid
            }
            PoolRef::Leased(attachment) => attachment.entry.uid,
        }
    }

    /// Notes the serial under which the slot was leased this time.
    #[inline]
    fn set_lease_serial(&self, serial: u64) {
        self.lease_serial.store(serial, Ordering::Relaxed);
    }

    /// Notes how many bytes were asked for this time.
    #[inline]
    pub(crate) fn set_len(&self, len: usize) {
        self.len.store(len, Ordering::Relaxed);
    }

    /// Gives the slot back.
    pub(crate) fn give_back(&self, published: bool) {
        match &self.pool {
            PoolRef::Allocated(owner) => owner.give_back(self.slot.index, None, published),
            PoolRef::Adopted(owner) => give_back_adopted(owner, self.slot.index),
            PoolRef::OwnLease(owner) => owner.release(self.slot.index),
            PoolRef::Leased(attachment) => attachment.release(self.slot.index),
        }
    }

    /// Gives back the slot, and the buffer itself, which nobody has a handle of any more.
    #[inline]
    pub(crate) fn recycle(buffer: Spare) {
        match buffer.home().map(|home| &home.pool) {
            Some(PoolRef::Leased(_)) => Attachment::take_back(buffer),
            _ => Home::recycle_own(buffer),
        }
    }

    /// The same, of a pool of this process. Apart, so that whoever receives is not delayed by a jump that has to be
    /// guessed.
    #[inline(never)]
    fn recycle_own(buffer: Spare) {
        let Some(home) = buffer.home() else { return };
        match &home.pool {
            PoolRef::Allocated(_) if buffer.must_retire() => Owner::retire(buffer),
            PoolRef::Allocated(_) => Owner::offer(buffer),
            _ => home.give_back(true),
        }
    }
}

/// Gives back memory that a pool did not make. The handle may be all that keeps the pool.
fn give_back_adopted(owner: &Arc<Owner<Buffer>>, slot: u32) {
    owner.give_back(slot, None, true);
    owner.linger();
}

/// The buffer of a slot of `owner`, allocated for `len` bytes; where there is no room, `make_room` may make some.
#[inline(always)]
pub(crate) fn alloc(
    owner: &Arc<Owner<Buffer>>,
    len: usize,
    make_room: impl FnMut() -> bool,
) -> Result<Handle> {
    let Some(spare) = owner.alloc_ready(len) else { return alloc_anew(owner, len, make_room) };
    spare.renew();
    Ok(Handle::of(spare))
}

/// The same, when none was ready.
#[inline(never)]
fn alloc_anew(
    owner: &Arc<Owner<Buffer>>,
    len: usize,
    make_room: impl FnMut() -> bool,
) -> Result<Handle> {
    allocated(owner, owner.alloc(len, make_room)?, len)
}

/// The buffer of a slot that was just allocated for `len` bytes.
pub(crate) fn allocated(
    owner: &Arc<Owner<Buffer>>,
    granted: Granted<Buffer>,
    len: usize,
) -> Result<Handle> {
    match granted {
        Granted::Again(spare) => {
            spare.renew();
            spare.home().iter().for_each(|home| home.set_len(len));
            Ok(Handle::of(spare))
        }
        Granted::New(slot, map) => {
            let pool = PoolRef::Allocated(owner.clone());
            region(map, Home::new(pool, slot, 0, len))
        }
    }
}

/// The buffer of memory that a pool has adopted, read-only.
pub(crate) fn adopted(owner: &Arc<Owner<Buffer>>, slot: Slot, map: Arc<Map>) -> Result<Handle> {
    region(map, Home::new(PoolRef::Adopted(owner.clone()), slot, 0, 0))
}

/// The buffer of a slot that was leased before, and is again.
#[inline]
pub(crate) fn leased_again(spare: Spare, serial: u64) -> Handle {
    spare.renew();
    spare.home().iter().for_each(|home| home.set_lease_serial(serial));
    Handle::of(spare)
}

/// The buffer of a slot that was just leased from another process, read-only.
pub(crate) fn leased(
    attachment: &Arc<Attachment<Buffer>>,
    leased: Leased<Buffer>,
    serial: u64,
) -> Result<Handle> {
    match leased {
        Leased::Again(spare) => Ok(leased_again(spare, serial)),
        Leased::New(slot, map) => {
            let home = Home::new(PoolRef::Leased(attachment.clone()), slot, serial, 0);
            let handle = region(map, home)?;
            attachment.note(slot.index, handle.storage().region.start().as_ptr());
            Ok(handle)
        }
    }
}

/// The buffer of a slot that this process leased from itself, read-only.
pub(crate) fn leased_own(
    owner: &Arc<Owner<Buffer>>,
    (slot, map): (Slot, Arc<Map>),
    serial: u64,
) -> Result<Handle> {
    region(map, Home::new(PoolRef::OwnLease(owner.clone()), slot, serial, 0))
}

/// A pooled buffer over part of a segment: what was allocated can be written, what was leased not.
#[allow(unsafe_code, reason = "slots of one segment share a mapping")]
fn region(map: Arc<Map>, home: Home) -> Result<Handle> {
    let range = home.slot.offset..home.slot.offset + home.slot.capacity;
    let (start, end, len) = (range.start as i128, range.end as i128, map.len());
    let access = match home.pool {
        PoolRef::Allocated(_) => Access::Write,
        PoolRef::Adopted(_) | PoolRef::OwnLease(_) | PoolRef::Leased(_) => Access::Read,
    };
    let (dma, protection) = (map.dmabuf().cloned(), dma::protection(&map));
    // SAFETY: to write: the allocator hands out disjoint ranges, and this one was handed out to
    // `home` and comes back when the buffer is dropped, so nobody else has a region over it. To
    // read: the slot is leased by `home`, so its owner does not reuse it, or it is adopted, and
    // sealed against writing: its bytes do not change. (Those of a DMA-BUF do not by the convention that
    // whoever shares one agrees to.) The range is the slot's: in this process
    // the allocator says so, elsewhere the owner's header, and the owner is trusted for the content
    // of its bytes.
    let Some(region) = (unsafe { Region::part(map, range, access) }) else {
        home.give_back(false); // nobody has seen it
        return Err(Error::OutOfBuffer { start, end, len });
    };
    // Another process's owner can still write, and ought not to: that much is not trusted.
    let stable = !matches!(home.pool, PoolRef::Leased(_));
    let memory = if dma.is_some() { TensorMemory::Dma } else { TensorMemory::Shm };
    let storage = Storage { memory, stable, protection, dma, ..Storage::heap(region, None) };
    Ok(Handle::pooled(storage, Selection::given(memory, Origin::Pooled), home))
}
