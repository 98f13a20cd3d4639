//! A tensor of a pool in as few words as it takes: what a topic's ring carries.
//!
//! ```text
//!   pool uid | serial | slot, ndim, dtype, format, packed? | offset | device, kind, words of meta | shape
//!   | strides, unless it is packed | meta
//! ```

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::format::PixelFormat;
use crate::layout::{Layout, MAX_DIMS};
use crate::tensor::Tensor;
use crate::tensor::buffer::Handle;

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
    /// Its offset is from the start of the slot.
    layout: Layout,
    /// Where it ends in the slot.
    end: usize,
    dtype: DType,
    format: Option<PixelFormat>,
    device: Device,
}

/// Writes a tensor to `words`, which must have room for [`max_words`]; tells how many it took.
///
/// From then on nobody can write the tensor's bytes.
pub(crate) fn pack(tensor: &Tensor, kind: u16, meta: &[u64], words: &mut [u64]) -> Result<usize> {
    let home = tensor.pooled()?;
    let layout = &tensor.layout;
    let (ndim, packed) = (layout.ndim(), layout.is_contiguous());
    let format = tensor.format.map_or(0, PixelFormat::code);
    words[0] = home.uid();
    words[1] = home.publish();
    words[2] = u64::from(home.slot.index)
        | (ndim as u64) << 32
        | u64::from(tensor.dtype.code()) << 40
        | u64::from(format) << 48
        | u64::from(packed) << 56;
    words[3] = layout.offset() as u64;
    words[4] = u64::from(tensor.device.code()) | u64::from(kind) << 32 | (meta.len() as u64) << 48;
    let (shape, rest) = words[HEAD..].split_at_mut(ndim);
    shape.iter_mut().zip(layout.shape()).for_each(|(to, &from)| *to = from as u64);
    let (strides, rest) = rest.split_at_mut(if packed { 0 } else { ndim });
    let steps = layout.strides().iter().map(|&stride| (stride as i64).cast_unsigned());
    strides.iter_mut().zip(steps).for_each(|(to, from)| *to = from);
    rest[..meta.len()].copy_from_slice(meta);
    Ok(HEAD + ndim + strides.len() + meta.len())
}

/// Reads what [`pack`] wrote, or what a stranger says it did.
#[inline]
pub(crate) fn unpack(words: &[u64]) -> Result<Packed<'_>> {
    let bad = |what| Error::BadMessage { what };
    let (head, rest) = words.split_at_checked(HEAD).ok_or(bad("it is too short"))?;
    let (codes, more) = (head[2].to_le_bytes(), head[4].to_le_bytes());
    let [_, _, _, _, ndim, dtype, format, packed] = codes;
    let meta = usize::from(u16::from_le_bytes([more[6], more[7]]));
    let (shape, rest) = rest.split_at_checked(ndim.into()).ok_or(bad("its shape is cut"))?;
    let strides = if packed == 0 { shape.len() } else { 0 };
    let (strides, rest) = rest.split_at_checked(strides).ok_or(bad("its strides are cut"))?;
    let meta = rest.get(..meta).ok_or(bad("its metadata are cut"))?;
    let dtype = DType::from_code(dtype).ok_or(bad("unknown dtype"))?;
    let format = match format {
        0 => None,
        code => Some(PixelFormat::from_code(code).ok_or(bad("unknown pixel format"))?),
    };
    let device = u32::from_le_bytes([more[0], more[1], more[2], more[3]]);
    let (layout, end) = match packed {
        0 => strided(shape, strides, head[3], dtype)?,
        _ => Layout::packed_from_words(shape, head[3], dtype.size())?,
    };
    Ok(Packed {
        pool: head[0],
        serial: head[1],
        slot: u32::from_le_bytes([codes[0], codes[1], codes[2], codes[3]]),
        kind: u16::from_le_bytes([more[4], more[5]]),
        meta,
        layout,
        end,
        dtype,
        format,
        device: Device::from_code(device).ok_or(bad("unknown device"))?,
    })
}

#[cold]
fn strided(shape: &[u64], strides: &[u64], offset: u64, dtype: DType) -> Result<(Layout, usize)> {
    let layout = Layout::from_words(shape, bytemuck::cast_slice(strides), offset, dtype.size())?;
    Ok((layout, layout.byte_range().end))
}

impl Packed<'_> {
    /// What the elements are, and how they lie.
    pub(crate) fn tensor(&self) -> (DType, &Layout, Option<PixelFormat>) {
        (self.dtype, &self.layout, self.format)
    }

    /// The tensor, in the buffer of the slot.
    #[inline]
    pub(super) fn in_slot(&self, buffer: Handle) -> Result<Tensor> {
        let Packed { layout, end, dtype, format, device, .. } = *self;
        if end > buffer.storage().region.len() {
            return Err(Error::BadMessage { what: "a tensor outside its slot" });
        }
        let tensor = Tensor::of(buffer, layout, dtype).with_device(device);
        match format {
            Some(format) => tensor.with_format(format),
            None => Ok(tensor),
        }
    }
}
