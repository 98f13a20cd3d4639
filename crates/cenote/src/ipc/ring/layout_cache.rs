//! Decodes the entries of one publisher, and keeps the layout of the last one.
//!
//! Most messages of a publisher have the same shape and type. The cache compares the words with those of the last
//! message; if they are equal, it neither decodes nor checks the layout again. Without it, the rows `hand-off/round trip, cenote,
//! Image` of `compare` take 45 % longer, and `growth/alloc, send, recv, drop` 25 %.
//!
//! Every word is input from another process. Codes become enums through tables, sizes become a layout through checked
//! arithmetic, and the layout must fit its slot before a tensor exists.

use std::iter::zip;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::ipc::ring::codec::{MAX_HEAD, OWN, PACKED, PLAIN, START, TensorEntry};
use crate::tensor::Tensor;
use crate::tensor::buffer::handle::Handle;
use crate::types::device::Device;
use crate::types::dtype::DType;
use crate::types::layout::{Layout, MAX_DIMS};
use crate::types::pixel_format::PixelFormat;

/// The most words of an entry without its metadata.
const MAX_WORDS: usize = MAX_HEAD + 2 * MAX_DIMS;

/// The word with the slot in its lower half, and ndim, dtype, format and flags in its upper half.
const CODES: usize = 1;

/// The last decoded entry of a publisher: all about its tensor except the buffer.
#[derive(Debug)]
pub struct LayoutCache {
    /// The words of the entry, without its metadata.
    words: [u64; MAX_WORDS],
    /// How many there are; 0 before the first entry.
    len: usize,
    /// The index in `words` before which the metadata was.
    meta_at: usize,
    /// How many words of metadata there were.
    meta: usize,
    /// The uid of the publisher's pool.
    own: u64,
    /// The uid of the tensor's pool.
    pool: u64,
    kind: u16,
    /// Its offset counts from the start of the slot.
    layout: Layout,
    /// The last byte of the tensor, plus one, from the start of the slot.
    end: usize,
    dtype: DType,
    device: Device,
    format: Option<PixelFormat>,
    /// The image was checked to fit a slot of this many bytes.
    fits_in: usize,
    /// The size of the image in pixels, once it was checked.
    size: (usize, usize),
}

impl LayoutCache {
    /// An empty cache for a publisher whose pool has the uid `own`.
    pub(crate) fn new(own: u64) -> Self {
        LayoutCache {
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

    /// Decodes what [`encode`](crate::ipc::ring::codec::encode) wrote. Fails with
    /// [`BadMessage`](Error::BadMessage) if it cannot have.
    #[inline(always)]
    pub(crate) fn decode<'w>(&mut self, words: &'w [u64]) -> Result<TensorEntry<'w>> {
        if !self.matches(words) {
            self.refill(words)?;
        }
        let meta = words.get(self.meta_at..self.meta_at + self.meta);
        match (words, meta) {
            ([serial, codes, ..], Some(meta)) => Ok(TensorEntry {
                pool: self.pool,
                serial: *serial,
                slot: low_half(*codes),
                kind: self.kind,
                meta,
            }),
            _ => Err(bad("its metadata are cut")),
        }
    }

    /// The element type, layout and pixel format of the entry that was decoded last.
    pub(crate) fn tensor_info(&self) -> (DType, &Layout, Option<PixelFormat>) {
        (self.dtype, &self.layout, self.format)
    }

    /// Whether these words differ from the cached ones only in serial, slot and metadata.
    #[inline(always)]
    fn matches(&self, words: &[u64]) -> bool {
        let (before_meta, after_meta) = (CODES + 1..self.meta_at, self.meta_at..self.len);
        let moved = after_meta.start + self.meta..after_meta.end + self.meta;
        let equal = |cached: Range<usize>, new: Range<usize>| {
            match (self.words.get(cached), words.get(new)) {
                (Some(cached), Some(new)) => zip(cached, new).all(|(cached, new)| cached == new),
                _ => false, // the cache is empty, or the entry is too short
            }
        };
        equal(before_meta.clone(), before_meta)
            && equal(after_meta, moved)
            && self.words[CODES] >> 32 == words[CODES] >> 32
    }

    /// Decodes an entry that differs from the cached one, and caches it.
    #[cold]
    fn refill(&mut self, words: &[u64]) -> Result<()> {
        self.len = 0; // empty, should decoding fail
        let mut rest = words.iter().copied();
        let mut next = || rest.next().ok_or_else(|| bad("it is too short"));
        let (_serial, codes) = (next()?, next()?.to_le_bytes());
        let [_, _, _, _, ndim, dtype, format, flags] = codes;
        let mut unless = |flag: u8, otherwise: u64| {
            if flags & flag == 0 { next() } else { Ok(otherwise) }
        };
        let (pool, offset) = (unless(OWN, self.own)?, unless(START, 0)?);
        let [device @ .., kind_low, kind_high, meta_low, meta_high] =
            unless(PLAIN, 0)?.to_le_bytes();
        let meta_at = words.len() - rest.len();
        let meta = usize::from(u16::from_le_bytes([meta_low, meta_high]));
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
        self.kind = u16::from_le_bytes([kind_low, kind_high]);
        let item_size = self.dtype.size();
        self.layout = match flags & PACKED {
            0 => Layout::from_words(shape, bytemuck::cast_slice(strides), offset, item_size)?,
            _ => packed_layout(shape, offset, item_size)?,
        };
        self.end = self.layout.byte_range().end;
        self.fits_in = usize::MAX;
        let without_meta = words[..meta_at].iter().chain(&words[from..end]);
        let len = end - meta;
        let room = self.words.get_mut(..len).ok_or_else(|| bad("it has too many dimensions"))?;
        zip(room, without_meta).for_each(|(to, from)| *to = *from);
        (self.meta_at, self.meta, self.len) = (meta_at, meta, len);
        Ok(())
    }

    /// Checks that the tensor that was decoded last is inside the buffer of its slot, and that it is an image if it has
    /// a pixel format.
    #[inline(always)]
    pub(crate) fn check_fits(&mut self, buffer: &Handle) -> Result<()> {
        let len = buffer.storage().len();
        if self.end > len {
            return Err(bad("a tensor outside its slot"));
        }
        if self.format.is_some() && self.fits_in > len {
            return self.check_image(buffer);
        }
        Ok(())
    }

    #[cold]
    fn check_image(&mut self, buffer: &Handle) -> Result<()> {
        let mut tensor = Tensor::of(buffer.clone(), self.layout.clone(), self.dtype);
        if let Some(format) = self.format {
            tensor.set_format(format)?;
        }
        self.size = tensor.image_size().ok_or_else(|| bad("an image without a size"))?;
        self.layout = tensor.layout.clone();
        self.fits_in = buffer.storage().len();
        Ok(())
    }

    /// The pixel format and the size in pixels, after [`check_fits`](LayoutCache::check_fits). `None` if the tensor
    /// is no image.
    #[inline(always)]
    pub(crate) fn image_info(&self) -> Option<(PixelFormat, (usize, usize))> {
        Some((self.format?, self.size))
    }

    /// Makes the tensor in the buffer of its slot, after [`check_fits`](LayoutCache::check_fits).
    #[inline(always)]
    pub(crate) fn make_tensor(&self, buffer: Handle) -> Tensor {
        let (dtype, device, format) = (self.dtype, self.device, self.format);
        Tensor { buffer, layout: self.layout.clone(), dtype, device, format, far_planes: None }
    }
}

fn packed_layout(shape: &[u64], offset: u64, item_size: usize) -> Result<Layout> {
    let len_of = |axis: usize| usize::try_from(shape[axis]).unwrap_or(usize::MAX);
    let offset = usize::try_from(offset).map_err(|_| bad("the offset is too large"))?;
    Layout::packed_len(shape.len(), len_of, item_size)
        .ok_or_else(|| bad("its shape makes no sense"))?;
    // `with_offset` checks that the end does not overflow.
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
