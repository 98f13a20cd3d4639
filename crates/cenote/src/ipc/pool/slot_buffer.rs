//! Buffers over slots: of slots that were allocated, adopted or leased.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::owner::state::Granted;
use crate::ipc::pool::reader::attachment::{Attachment, Leased};
use crate::ipc::pool::slot_home;
use crate::memory::dma;
use crate::memory::kind::TensorMemory;
use crate::memory::region::Region;
use crate::memory::selection::{Origin, Selection};
use crate::memory::slot::Slot;
use crate::memory::storage::Storage;
use crate::sys::mapping::{Access, Map};
use crate::tensor::buffer::Buffer;
use crate::tensor::buffer::buffer::BufferSlot;
use crate::tensor::buffer::handle::Handle;

/// The buffer of a slot of `owner`, allocated for `len` bytes; where there is no room, `make_room` may make some.
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

/// The same, when none was ready.
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

/// The buffer of memory that a pool has adopted, read-only.
pub(crate) fn adopted(owner: &Arc<Owner>, slot: Slot, map: Arc<Map>) -> Result<Handle> {
    region(map, slot_home::adopted(owner.clone(), slot))
}

/// The buffer of a slot that was leased before, and is again.
#[inline]
pub(crate) fn leased_again(buffer: Arc<Buffer>, serial: u64) -> Handle {
    buffer.renew();
    buffer.slot_ref().iter().for_each(|slot_ref| slot_ref.set_lease_serial(serial));
    Handle::of(buffer)
}

/// The buffer of a slot that was just leased from another process, read-only.
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

/// The buffer of a slot that this process leased from itself, read-only.
pub(crate) fn leased_own(
    owner: &Arc<Owner>,
    (slot, map): (Slot, Arc<Map>),
    serial: u64,
) -> Result<Handle> {
    region(map, slot_home::own_lease(owner.clone(), slot, serial))
}

/// A pooled buffer over part of a segment: what was allocated can be written, what was leased not.
#[allow(unsafe_code, reason = "slots of one segment share a mapping")]
fn region(map: Arc<Map>, slot_ref: BufferSlot) -> Result<Handle> {
    let range = slot_ref.slot.offset..slot_ref.slot.offset + slot_ref.slot.capacity;
    let (start, end, len) = (range.start as i128, range.end as i128, map.len());
    let access = if slot_home::is_allocated(&slot_ref) { Access::Write } else { Access::Read };
    let (dma, protection) = (map.dmabuf().cloned(), dma::protection(&map));
    // SAFETY: to write: the allocator hands out disjoint ranges, and this one was handed out to
    // `slot_ref` and comes back when the buffer is dropped, so nobody else has a region over it. To
    // read: the slot is leased by `slot_ref`, so its owner does not reuse it, or it is adopted, and
    // sealed against writing: its bytes do not change. (Those of a DMA-BUF do not by the convention that
    // whoever shares one agrees to.) The range is the slot's: in this process
    // the allocator says so, elsewhere the owner's header, and the owner is trusted for the content
    // of its bytes.
    let Some(region) = (unsafe { Region::part(map, range, access) }) else {
        slot_ref.release(false); // nobody has seen it
        return Err(Error::OutOfBuffer { start, end, len });
    };
    // Another process's owner can still write, and ought not to: that much is not trusted.
    let stable = !slot_home::is_leased(&slot_ref);
    let memory = if dma.is_some() { TensorMemory::Dma } else { TensorMemory::Shm };
    let storage = Storage { memory, stable, protection, dma, ..Storage::heap(region, None) };
    Ok(Handle::pooled(storage, Selection::given(memory, Origin::Pooled), slot_ref))
}
