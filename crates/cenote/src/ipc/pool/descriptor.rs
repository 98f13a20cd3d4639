//! The descriptor of a tensor in a pool: a few words that can be sent by any means.
//!
//! A head of fixed length, then shape, strides and metadata. Only the words in use are sent.

use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::types::device::Device;
use crate::types::dtype::DType;
use crate::types::layout::{Layout, MAX_DIMS};
use crate::types::metadata::{MAX_META, Meta};
use crate::types::pixel_format::PixelFormat;

/// The version of the descriptor's layout.
const VERSION: u8 = 2;

/// The most words after the head: a shape, strides and metadata.
const MAX_TAIL: usize = 2 * MAX_DIMS + MAX_META;

/// The bytes of the head.
const HEAD: usize = size_of::<TensorDescriptor>() - 8 * MAX_TAIL;

/// A tensor in a pool, as plain words.
///
/// A descriptor names the tensor without holding it. The receiver calls [`Tensor::from_descriptor`] (or
/// [`TensorPool::import`](crate::TensorPool::import)) while the sender still holds the tensor. Once the memory is
/// reused, that is an error.
///
/// ```
/// use cenote::{DType, Tensor, TensorDescriptor, TensorPool, TensorPoolConfig};
/// # let dir = std::env::temp_dir().join(format!("cenote-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
///
/// let pool = TensorPool::new("frames", TensorPoolConfig::small())?;
/// let tensor = pool.alloc(&[480, 640], DType::U8)?;
/// let bytes: Vec<u8> = tensor.descriptor()?.as_bytes().to_vec(); // to be sent anywhere
///
/// let descriptor = TensorDescriptor::from_bytes(&bytes)?;
/// let same = Tensor::from_descriptor(&descriptor)?; // in any process of this user
/// assert_eq!(same.shape(), [480, 640]);
/// # drop((pool, tensor, same)); std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct TensorDescriptor {
    pub(crate) pool: u64,
    pub(crate) serial: u64,
    pub(crate) segment: u32,
    pub(crate) slot: u32,
    /// From the start of the segment.
    offset: u64,
    device: u32,
    version: u8,
    dtype: u8,
    /// 0: none.
    format: u8,
    /// Unchecked, like every field: a descriptor can be made from any bytes.
    ndim: u8,
    /// The domain type that the metadata belongs to.
    kind: u16,
    /// Words of metadata.
    meta: u16,
    reserved: u32,
    /// Shape, strides and metadata, one after another, then zeros.
    tail: [u64; MAX_TAIL],
}

impl TensorDescriptor {
    /// The descriptor as bytes. Their number depends on the dimensions and the metadata.
    pub fn as_bytes(&self) -> &[u8] {
        &bytemuck::bytes_of(self)[..HEAD + 8 * self.tail_len()]
    }

    /// A descriptor from bytes. Fails if their number is wrong. Their content is checked when the descriptor is used.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = |what| Error::BadMessage { what };
        let mut descriptor = Self::zeroed();
        let whole = bytemuck::bytes_of_mut(&mut descriptor);
        let room = whole.get_mut(..bytes.len()).ok_or(bad("it is longer than any descriptor"))?;
        room.copy_from_slice(bytes);
        if usize::from(descriptor.ndim) > MAX_DIMS {
            return Err(bad("too many dimensions"));
        }
        if usize::from(descriptor.meta) > MAX_META {
            return Err(bad("too much metadata"));
        }
        if bytes.len() != HEAD + 8 * descriptor.tail_len() {
            return Err(bad("it has not the length of a descriptor"));
        }
        Ok(descriptor)
    }

    /// The uid of the pool.
    pub fn pool(&self) -> u64 {
        self.pool
    }

    /// The code of the domain type that it describes.
    pub(crate) fn kind(&self) -> u16 {
        self.kind
    }

    /// The metadata.
    pub(crate) fn meta(&self) -> Result<Meta> {
        let start = 2 * usize::from(self.ndim);
        let words = self.tail.get(start..start + usize::from(self.meta));
        Meta::from_words(words.ok_or(Error::BadMessage { what: "too much metadata" })?)
    }

    /// Adds metadata of a domain type to a descriptor that has none.
    pub(crate) fn set_meta(&mut self, kind: u16, meta: &Meta) {
        let words = meta.as_words();
        let start = 2 * usize::from(self.ndim);
        self.tail[start..start + words.len()].copy_from_slice(words);
        self.kind = kind;
        self.meta = u16::try_from(words.len()).unwrap_or_default();
    }

    /// The number of words in use after the head.
    fn tail_len(&self) -> usize {
        (2 * usize::from(self.ndim) + usize::from(self.meta)).min(MAX_TAIL)
    }

    /// Describes `tensor`, whose buffer starts `start` bytes into the segment.
    pub(crate) fn of(
        tensor: &Tensor,
        (pool, serial): (u64, u64),
        (segment, slot): (u32, u32),
        start: usize,
    ) -> Self {
        let layout = &tensor.layout;
        let mut descriptor = TensorDescriptor {
            pool,
            serial,
            segment,
            slot,
            offset: (start + layout.offset()) as u64,
            device: tensor.device.code(),
            version: VERSION,
            dtype: tensor.dtype.code(),
            format: tensor.format.map_or(0, PixelFormat::code),
            ndim: u8::try_from(layout.ndim()).unwrap_or_default(),
            ..Self::zeroed()
        };
        let (shape, rest) = descriptor.tail.split_at_mut(layout.ndim());
        for (to, &from) in shape.iter_mut().zip(layout.shape()) {
            *to = from as u64;
        }
        for (to, &from) in rest.iter_mut().zip(layout.strides()) {
            *to = (from as i64).cast_unsigned();
        }
        descriptor
    }

    /// The layout, type, format and device that it describes, checked.
    pub(crate) fn read(&self) -> Result<(Layout, DType, Option<PixelFormat>, Device)> {
        let bad = |what| Error::BadMessage { what };
        if self.version != VERSION {
            return Err(bad("a descriptor of another version"));
        }
        let dtype = DType::from_code(self.dtype).ok_or(bad("unknown dtype"))?;
        let device = Device::from_code(self.device).ok_or(bad("unknown device"))?;
        let format = match self.format {
            0 => None,
            code => Some(PixelFormat::from_code(code).ok_or(bad("unknown pixel format"))?),
        };
        let ndim = usize::from(self.ndim);
        let words = self.tail.get(..2 * ndim).ok_or(bad("too many dimensions"))?;
        let (shape, strides) = words.split_at(ndim);
        let strides = bytemuck::cast_slice(strides);
        let layout = Layout::from_words(shape, strides, self.offset, dtype.size())?;
        Ok((layout, dtype, format, device))
    }
}

/// Shows the words in use.
impl fmt::Debug for TensorDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorDescriptor")
            .field("pool", &format_args!("{:016x}", self.pool))
            .field("segment", &self.segment)
            .field("slot", &self.slot)
            .field("serial", &self.serial)
            .field("offset", &self.offset)
            .field("kind", &self.kind)
            .field("tail", &&self.tail[..self.tail_len()])
            .finish_non_exhaustive()
    }
}
