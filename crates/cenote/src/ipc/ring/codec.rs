//! How a tensor of a pool is written into a ring entry. `layout_cache.rs` is the other direction.
//!
//! ```text
//!   serial | slot, ndim, dtype, format, flags | pool uid, unless OWN | offset, unless START
//!          | device, kind, words of metadata, unless PLAIN | metadata | shape | strides, unless PACKED
//! ```
//!
//! The words that differ in every message come first, so that they are in the cache line that readers fetch anyway:
//! metadata begins with the time stamp and number of a frame. The shape is usually that of the message before.

use crate::error::Result;
use crate::ipc::pool::slot_home;
use crate::tensor::Tensor;
use crate::types::layout::MAX_DIMS;
use crate::types::metadata::Room;
use crate::types::pixel_format::PixelFormat;

/// The most words before metadata, shape and strides.
pub(crate) const MAX_HEAD: usize = 5;

/// The elements are contiguous: no strides follow.
pub(crate) const PACKED: u8 = 1;
/// The tensor is in the pool of the publisher: no uid follows.
pub(crate) const OWN: u8 = 2;
/// The tensor starts at the start of its slot: no offset follows.
pub(crate) const START: u8 = 4;
/// A tensor for the CPU without metadata: neither device nor kind follows.
pub(crate) const PLAIN: u8 = 8;

/// The most words of an entry whose message has `meta` words of metadata.
pub(crate) const fn max_words(meta: usize) -> usize {
    MAX_HEAD + 2 * MAX_DIMS + meta
}

/// The parts of a decoded entry that differ from message to message. The [`LayoutCache`] that decoded the entry has
/// the others.
///
/// [`LayoutCache`]: crate::ipc::ring::layout_cache::LayoutCache
#[derive(Debug)]
pub struct TensorEntry<'a> {
    /// The uid of the pool.
    pub(crate) pool: u64,
    pub(crate) serial: u64,
    pub(crate) slot: u32,
    /// Which type the message is: `KIND` of [`Domain`](crate::domain::Domain).
    pub(crate) kind: u16,
    pub(crate) meta: &'a [u64],
}

/// Encodes `tensor` into `words`, which must have room for [`max_words`]; returns how many it used. `own` is the uid of the
/// publisher's pool. `meta` writes the metadata; a plain tensor (kind 0) has none.
///
/// Publishes the tensor: from here on no process can write its bytes. Fails if it is in no pool, or loaned.
#[inline(always)]
pub(crate) fn encode(
    tensor: &Tensor,
    own: u64,
    kind: u16,
    meta: impl FnOnce(&mut Room<'_>),
    words: &mut [u64],
) -> Result<usize> {
    let slot_ref = tensor.pooled()?;
    let (layout, pool) = (&tensor.layout, slot_home::uid(slot_ref));
    let offset = layout.offset() as u64;
    let device_and_kind = u64::from(tensor.device.code()) | u64::from(kind) << 32;
    let flag = |flag: u8, set: bool| if set { flag } else { 0 };
    let flags = flag(PACKED, layout.is_contiguous())
        | flag(OWN, pool == own)
        | flag(START, offset == 0)
        | flag(PLAIN, device_and_kind == 0);
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
            let at = room.len();
            room.push(device_and_kind);
            meta(room);
            room.add_to(at, ((room.len() - at - 1) as u64) << 48);
        }
        layout.shape().iter().for_each(|&axis| room.push(axis as u64));
        if flags & PACKED == 0 {
            layout.strides().iter().for_each(|&stride| room.push((stride as i64).cast_unsigned()));
        }
    }))
}
