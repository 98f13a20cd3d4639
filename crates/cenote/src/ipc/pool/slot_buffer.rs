//! The buffers of slots that were allocated, adopted or leased.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::owner::state::Granted;
use crate::ipc::pool::reader::attachment::{Attachment, Leased};
use crate::ipc::pool::slot_home;
use crate::memory::choose::selection::{Origin, Selection};
use crate::memory::dma::dma;
use crate::memory::kind::TensorMemory;
use crate::memory::region::Region;
use crate::memory::slot::Slot;
use crate::memory::storage::Storage;
use crate::sys::mapping::{Access, Map};
use crate::tensor::buffer::Buffer;
use crate::tensor::buffer::buffer::BufferSlot;
use crate::tensor::buffer::handle::Handle;

/// Allocates a slot of `owner` for `len` bytes. If the pool is full, calls `make_room` and tries again if it returned
/// `true`.
#[inline(always)]
pub(crate) fn alloc(
    owner: &Arc<Owner>,
    len: usize,
    make_room: impl FnMut() -> bool,
) -> Result<Handle> {
    let Some(buffer) = owner.alloc_cached(len) else { return alloc_anew(owner, len, make_room) };
    buffer.renew();
    Ok(Handle::of(buffer))
}

/// Allocates a slot that was not in the free cache.
#[inline(never)]
fn alloc_anew(owner: &Arc<Owner>, len: usize, make_room: impl FnMut() -> bool) -> Result<Handle> {
    allocated(owner, owner.alloc(len, make_room)?, len)
}

/// The buffer of a slot that was just allocated for `len` bytes.
pub(crate) fn allocated(owner: &Arc<Owner>, granted: Granted, len: usize) -> Result<Handle> {
    match granted {
        Granted::Recycled(buffer) => {
            buffer.renew();
            buffer.slot_ref().iter().for_each(|slot_ref| slot_ref.set_len(len));
            Ok(Handle::of(buffer))
        }
        Granted::New(slot, map) => region(map, slot_home::allocated(owner.clone(), slot, len)),
    }
}

/// The read-only buffer of adopted memory.
pub(crate) fn adopted(owner: &Arc<Owner>, slot: Slot, map: Arc<Map>) -> Result<Handle> {
    region(map, slot_home::adopted(owner.clone(), slot))
}

/// The buffer of a slot that is leased again.
#[inline]
pub(crate) fn leased_again(buffer: Arc<Buffer>, serial: u64) -> Handle {
    buffer.renew();
    buffer.slot_ref().iter().for_each(|slot_ref| slot_ref.set_lease_serial(serial));
    Handle::of(buffer)
}

/// The read-only buffer of a slot that was just leased from another process.
pub(crate) fn leased(attachment: &Arc<Attachment>, leased: Leased, serial: u64) -> Result<Handle> {
    match leased {
        Leased::Recycled(buffer) => Ok(leased_again(buffer, serial)),
        Leased::New(slot, map) => {
            let handle = region(map, slot_home::leased(attachment.clone(), slot, serial))?;
            attachment.note_address(slot.index, handle.storage().region.start().as_ptr());
            Ok(handle)
        }
    }
}

/// The read-only buffer of a slot that this process leased from itself.
pub(crate) fn leased_own(
    owner: &Arc<Owner>,
    (slot, map): (Slot, Arc<Map>),
    serial: u64,
) -> Result<Handle> {
    region(map, slot_home::own_lease(owner.clone(), slot, serial))
}

/// Makes a buffer over a range of a segment. An allocated slot can be written, any other only read.
#[allow(unsafe_code, reason = "slots of one segment share a mapping")]
fn region(map: Arc<Map>, slot_ref: BufferSlot) -> Result<Handle> {
    let range = slot_ref.slot.offset..slot_ref.slot.offset + slot_ref.slot.capacity;
    let (start, end, len) = (range.start as i128, range.end as i128, map.len());
    let access = if slot_home::is_allocated(&slot_ref) { Access::Write } else { Access::Read };
    let (dma, protection) = (map.dmabuf().cloned(), dma::protection(&map));
    // SAFETY: to write: the allocator hands out disjoint ranges. This one belongs to `slot_ref` until the buffer is
    // dropped, so no other region over it exists. To read: `slot_ref` holds a lease on the slot, so its owner does not
    // reuse it; or the slot is adopted and sealed against writing. So its bytes do not change. (Those of a DMA-BUF do
    // not change by convention, which the process that shares it accepts.) The range is that of the slot: in this
    // process the allocator says so, in others the owner's header, and the owner is trusted for the content of its
    // bytes.
    let Some(region) = (unsafe { Region::part(map, range, access) }) else {
        slot_ref.release(false); // no other process can have seen it
        return Err(Error::OutOfBuffer { start, end, len });
    };
    // The owner in another process can still write the bytes. It should not, but that is not trusted.
    let stable = !slot_home::is_leased(&slot_ref);
    let memory = if dma.is_some() { TensorMemory::Dma } else { TensorMemory::Shm };
    let storage = Storage { memory, stable, protection, dma, ..Storage::heap(region, None) };
    Ok(Handle::pooled(storage, Selection::given(memory, Origin::Pooled), slot_ref))
}
