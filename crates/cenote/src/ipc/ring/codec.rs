//! A tensor of a pool in as few words as it takes: what a topic's ring carries.
//!
//! ```text
//!   serial | slot, ndim, dtype, format, flags | pool uid, unless OWN | offset, unless START
//!   | device, kind, words of meta, unless PLAIN | meta | shape | strides, unless PACKED
//! ```
//!
//! What is different in every message comes first, and so into the line that travels anyway: metadata begin with the time
//! and number of a frame. The shape of most is what it was before.

use crate::error::Result;
use crate::ipc::pool::slot_home;
use crate::tensor::Tensor;
use crate::types::layout::MAX_DIMS;
use crate::types::metadata::Room;
use crate::types::pixel_format::PixelFormat;

/// The most words before metadata, shape and strides.
pub(crate) const HEAD: usize = 5;

/// The elements lie side by side.
pub(crate) const PACKED: u8 = 1;
/// The pool is that of the publisher.
pub(crate) const OWN: u8 = 2;
/// At the start of the slot.
pub(crate) const START: u8 = 4;
/// A tensor for the CPU, and nothing beside it.
pub(crate) const PLAIN: u8 = 8;

/// The most words of a packed tensor with `meta` words beside it.
pub(crate) const fn max_words(meta: usize) -> usize {
    HEAD + 2 * MAX_DIMS + meta
}

/// The words of a packed tensor, beside those that tell what it is like.
#[derive(Debug)]
pub struct Packed<'a> {
    pub(crate) pool: u64,
    pub(crate) serial: u64,
    pub(crate) slot: u32,
    pub(crate) kind: u16,
    pub(crate) meta: &'a [u64],
}

/// Writes a tensor to `words`, which must have room for [`max_words`]; tells how many it took, beyond which there may be
/// anything. `own` is the pool of whoever publishes it; `meta` writes the metadata, of which tensors of kind 0 have none.
///
/// From then on nobody can write the tensor's bytes.
#[inline(always)]
pub(crate) fn pack(
    tensor: &Tensor,
    own: u64,
    kind: u16,
    meta: impl FnOnce(&mut Room<'_>),
    words: &mut [u64],
) -> Result<usize> {
    let slot_ref = tensor.pooled()?;
    let (layout, pool) = (&tensor.layout, slot_home::uid(slot_ref));
    let offset = layout.offset() as u64;
    let more = u64::from(tensor.device.code()) | u64::from(kind) << 32;
    let flag = |flag: u8, set: bool| if set { flag } else { 0 };
    let packed = flag(PACKED, layout.is_contiguous());
    let flags = packed | flag(OWN, pool == own) | flag(START, offset == 0) | flag(PLAIN, more == 0);
    let codes = u64::from(slot_ref.slot.index)
        | (layout.ndim() as u64) << 32
        | u64::from(tensor.dtype.code()) << 40
        | u64::from(tensor.format.map_or(0, PixelFormat::code)) << 48
        | u64::from(flags) << 56;
    let serial = slot_home::publish(slot_ref);
    Ok(Room::fill(words, |room| {
        room.push(serial);
        room.push(codes);
        if flags & OWN == 0 {
            room.push(pool);
        }
        if flags & START == 0 {
            room.push(offset);
        }
        if flags & PLAIN == 0 {
            let more_at = room.len();
            room.push(more);
            meta(room);
            room.add_to(more_at, ((room.len() - more_at - 1) as u64) << 48);
        }
        layout.shape().iter().for_each(|&axis| room.push(axis as u64));
        if packed == 0 {
            layout.strides().iter().for_each(|&stride| room.push((stride as i64).cast_unsigned()));
        }
    }))
}
