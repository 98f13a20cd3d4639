//! What the tensors of a publisher are like. Most are like the one before: then nothing is worked out again.

use std::iter::zip;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::ipc::ring::codec::{HEAD, OWN, PACKED, PLAIN, Packed, START};
use crate::tensor::Tensor;
use crate::tensor::buffer::handle::Handle;
use crate::types::device::Device;
use crate::types::dtype::DType;
use crate::types::layout::{Layout, MAX_DIMS};
use crate::types::pixel_format::PixelFormat;

/// The most words that tell what a tensor is like, and where.
const MAX_WORDS: usize = HEAD + 2 * MAX_DIMS;

/// The slot is in the lower half of this word, and beyond it what the tensor is like.
const CODES: usize = 1;

/// Everything about a tensor but its buffer, as words from a stranger tell it.
#[derive(Debug)]
pub struct Mould {
    /// The words themselves, without those of metadata.
    words: [u64; MAX_WORDS],
    /// How many there are; 0 before the first.
    len: usize,
    /// Before which of them metadata were, and how many words of that.
    meta_at: usize,
    meta: usize,
    /// The pool of the publisher, and that of the tensor.
    own: u64,
    pool: u64,
    kind: u16,
    /// From the start of the slot.
    layout: Layout,
    /// Where it ends.
    end: usize,
    dtype: DType,
    device: Device,
    format: Option<PixelFormat>,
    /// In slots of this many bytes or more, the format is known to fit.
    fits_in: usize,
    /// In pixels, once it is known to fit.
    size: (usize, usize),
}

impl Mould {
    /// For the tensors of a publisher whose own pool has this number.
    pub(crate) fn new(own: u64) -> Self {
        Mould {
            words: [0; MAX_WORDS],
            len: 0,
            meta_at: 0,
            meta: 0,
            own,
            pool: own,
            kind: 0,
            layout: Layout::scalar(0, 1),
            end: 0,
            dtype: DType::U8,
            device: Device::cpu(),
            format: None,
            fits_in: usize::MAX,
            size: (0, 0),
        }
    }

    /// Reads what [`pack`](crate::ipc::ring::codec::pack) wrote, or what a stranger says it did.
    #[inline(always)]
    pub(crate) fn read<'w>(&mut self, words: &'w [u64]) -> Result<Packed<'w>> {
        if !self.is_like(words) {
            self.learn(words)?;
        }
        let meta = words.get(self.meta_at..self.meta_at + self.meta);
        match (words, meta) {
            ([serial, codes, ..], Some(meta)) => Ok(Packed {
                pool: self.pool,
                serial: *serial,
                slot: low_half(*codes),
                kind: self.kind,
                meta,
            }),
            _ => Err(bad("its metadata are cut")),
        }
    }

    /// What the elements of the tensor that was read last are, and how they lie.
    pub(crate) fn tensor(&self) -> (DType, &Layout, Option<PixelFormat>) {
        (self.dtype, &self.layout, self.format)
    }

    #[inline(always)]
    fn is_like(&self, words: &[u64]) -> bool {
        // What is before the metadata, and what is behind.
        let (before, behind) = (CODES + 1..self.meta_at, self.meta_at..self.len);
        let moved = behind.start + self.meta..behind.end + self.meta;
        let alike = |ours: Range<usize>, theirs: Range<usize>| {
            match (self.words.get(ours), words.get(theirs)) {
                (Some(ours), Some(theirs)) => {
                    zip(ours, theirs).all(|(ours, theirs)| ours == theirs)
                }
                _ => false, // nothing was learnt yet, or it is too short
            }
        };
        alike(before.clone(), before)
            && alike(behind, moved)
            && self.words[CODES] >> 32 == words[CODES] >> 32
    }

    #[cold]
    fn learn(&mut self, words: &[u64]) -> Result<()> {
        self.len = 0; // what is not understood is like nothing
        let mut rest = words.iter().copied();
        let mut next = || rest.next().ok_or_else(|| bad("it is too short"));
        let (_serial, codes) = (next()?, next()?.to_le_bytes());
        let [_, _, _, _, ndim, dtype, format, flags] = codes;
        let mut unless = |flag: u8, otherwise: u64| {
            if flags & flag == 0 { next() } else { Ok(otherwise) }
        };
        let (pool, offset) = (unless(OWN, self.own)?, unless(START, 0)?);
        let [device @ .., kind, kind_too, meta, meta_too] = unless(PLAIN, 0)?.to_le_bytes();
        let meta_at = words.len() - rest.len();
        let meta = usize::from(u16::from_le_bytes([meta, meta_too]));
        let (from, axes) = (meta_at + meta, usize::from(ndim));
        let strides = if flags & PACKED == 0 { axes } else { 0 };
        let shape = words.get(from..from + axes).ok_or_else(|| bad("its shape is cut"))?;
        let end = from + axes + strides;
        let strides = words.get(from + axes..end).ok_or_else(|| bad("its strides are cut"))?;
        self.pool = pool;
        self.dtype = DType::from_code(dtype).ok_or_else(|| bad("unknown dtype"))?;
        self.format = match format {
            0 => None,
            code => Some(PixelFormat::from_code(code).ok_or_else(|| bad("unknown pixel format"))?),
        };
        let device = Device::from_code(u32::from_le_bytes(device));
        self.device = device.ok_or_else(|| bad("unknown device"))?;
        self.kind = u16::from_le_bytes([kind, kind_too]);
        let size = self.dtype.size();
        self.layout = match flags & PACKED {
            0 => Layout::from_words(shape, bytemuck::cast_slice(strides), offset, size)?,
            _ => packed_layout(shape, offset, size)?,
        };
        self.end = self.layout.byte_range().end;
        self.fits_in = usize::MAX;
        let like = words[..meta_at].iter().chain(&words[from..end]);
        let len = end - meta;
        let room = self.words.get_mut(..len).ok_or_else(|| bad("it has too many dimensions"))?;
        zip(room, like).for_each(|(to, from)| *to = *from);
        (self.meta_at, self.meta, self.len) = (meta_at, meta, len);
        Ok(())
    }

    /// Whether the tensor that was read last is inside the buffer of its slot, and an image if it says so.
    #[inline(always)]
    pub(crate) fn fit(&mut self, buffer: &Handle) -> Result<()> {
        let len = buffer.storage().len();
        if self.end > len {
            return Err(bad("a tensor outside its slot"));
        }
        if self.format.is_some() && self.fits_in > len {
            return self.fit_format(buffer);
        }
        Ok(())
    }

    #[cold]
    fn fit_format(&mut self, buffer: &Handle) -> Result<()> {
        let mut tensor = Tensor::of(buffer.clone(), self.layout.clone(), self.dtype);
        if let Some(format) = self.format {
            tensor.set_format(format)?;
        }
        self.size = tensor.image_size().ok_or_else(|| bad("an image without a size"))?;
        self.layout = tensor.layout.clone();
        self.fits_in = buffer.storage().len();
        Ok(())
    }

    /// What the tensor that was found to [`fit`](Mould::fit) shows: its format, and its size in pixels.
    #[inline(always)]
    pub(crate) fn picture(&self) -> Option<(PixelFormat, (usize, usize))> {
        Some((self.format?, self.size))
    }

    /// Makes a tensor in the buffer of its slot, which it was found to [`fit`](Mould::fit).
    #[inline(always)]
    pub(crate) fn cast(&self, buffer: Handle) -> Tensor {
        let (dtype, device, format) = (self.dtype, self.device, self.format);
        Tensor { buffer, layout: self.layout.clone(), dtype, device, format, far_planes: None }
    }
}

fn packed_layout(shape: &[u64], offset: u64, item_size: usize) -> Result<Layout> {
    let len_of = |axis: usize| usize::try_from(shape[axis]).unwrap_or(usize::MAX);
    let offset = usize::try_from(offset).map_err(|_| bad("the offset is too large"))?;
    Layout::packed_len(shape.len(), len_of, item_size)
        .ok_or_else(|| bad("its shape makes no sense"))?;
    // Checks that it ends where something can.
    Layout::packed(shape.len(), len_of, 0, item_size).with_offset(offset)
}

fn low_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cold]
fn bad(what: &'static str) -> Error {
    Error::BadMessage { what }
}
