//! A tensor of a pool in as few words as it takes: what a topic's ring carries.
//!
//! ```text
//!   pool uid | serial | slot, ndim, dtype, format | offset | device, kind, words of meta | shape | strides | meta
//! ```

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::format::PixelFormat;
use crate::layout::{Layout, MAX_DIMS};
use crate::tensor::Tensor;

/// The words before shape and strides.
const HEAD: usize = 5;

/// The most words of a packed tensor with `meta` words beside it.
pub(crate) const fn max_words(meta: usize) -> usize {
    HEAD + 2 * MAX_DIMS + meta
}

/// What packed words say, checked as far as can be without looking at the pool.
#[derive(Debug)]
pub struct Packed<'a> {
    pub(crate) pool: u64,
    pub(crate) serial: u64,
    pub(crate) slot: u32,
    pub(crate) kind: u16,
    pub(crate) meta: &'a [u64],
    pub(crate) content: (Layout, DType, Option<PixelFormat>, Device),
}

/// Writes a tensor to `words`, which must have room for [`max_words`]; tells how many it took.
///
/// From then on nobody can write the tensor's bytes.
pub(crate) fn pack(tensor: &Tensor, kind: u16, meta: &[u64], words: &mut [u64]) -> Result<usize> {
    let home = tensor.pooled()?;
    let layout = &tensor.layout;
    let ndim = layout.ndim();
    let format = tensor.format.map_or(0, PixelFormat::code);
    words[0] = home.uid();
    words[1] = home.publish();
    words[2] = u64::from(home.slot.index)
        | (ndim as u64) << 32
        | u64::from(tensor.dtype.code()) << 40
        | u64::from(format) << 48;
    words[3] = (home.slot.offset + layout.offset()) as u64;
    words[4] = u64::from(tensor.device.code()) | u64::from(kind) << 32 | (meta.len() as u64) << 48;
    let (shape, rest) = words[HEAD..].split_at_mut(ndim);
    let (strides, rest) = rest.split_at_mut(ndim);
    shape.iter_mut().zip(layout.shape()).for_each(|(to, &from)| *to = from as u64);
    strides
        .iter_mut()
        .zip(layout.strides())
        .for_each(|(to, &from)| *to = (from as i64).cast_unsigned());
    rest[..meta.len()].copy_from_slice(meta);
    Ok(HEAD + 2 * ndim + meta.len())
}

/// Reads what [`pack`] wrote, or what a stranger says it did.
#[allow(clippy::cast_possible_truncation, reason = "a word holds several numbers")]
pub(crate) fn unpack(words: &[u64]) -> Result<Packed<'_>> {
    let bad = |what| Error::BadMessage { what };
    let (head, rest) = words.split_at_checked(HEAD).ok_or(bad("it is too short"))?;
    let (slot_and_codes, device_and_lens) = (head[2], head[4]);
    let ndim = usize::from((slot_and_codes >> 32) as u8);
    let meta = usize::from((device_and_lens >> 48) as u16);
    let (shape, rest) = rest.split_at_checked(ndim).ok_or(bad("its shape is cut"))?;
    let (strides, rest) = rest.split_at_checked(ndim).ok_or(bad("its strides are cut"))?;
    let meta = rest.get(..meta).ok_or(bad("its metadata are cut"))?;
    let dtype = DType::from_code((slot_and_codes >> 40) as u8).ok_or(bad("unknown dtype"))?;
    let format = match (slot_and_codes >> 48) as u8 {
        0 => None,
        code => Some(PixelFormat::from_code(code).ok_or(bad("unknown pixel format"))?),
    };
    let device = Device::from_code(device_and_lens as u32).ok_or(bad("unknown device"))?;
    let strides = bytemuck::cast_slice(strides);
    let layout = Layout::from_words(shape, strides, head[3], dtype.size())?;
    Ok(Packed {
        pool: head[0],
        serial: head[1],
        slot: slot_and_codes as u32,
        kind: (device_and_lens >> 32) as u16,
        meta,
        content: (layout, dtype, format, device),
    })
}
