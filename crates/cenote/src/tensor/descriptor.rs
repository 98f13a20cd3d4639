//! The few words that stand for a tensor of a pool, and can be sent by any means.

use bytemuck::{Pod, Zeroable};

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::format::PixelFormat;
use crate::layout::{Layout, MAX_DIMS};
use crate::tensor::Tensor;

/// The version of the descriptor's layout.
const VERSION: u8 = 1;

/// A tensor of a pool, as plain words.
///
/// It names the tensor without holding it: whoever receives it calls
/// [`Tensor::from_descriptor`] (or [`TensorPool::import`](crate::TensorPool::import)) while the
/// sender still holds the tensor. Once the memory was reused, that is an error.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct TensorDescriptor {
    pub(super) pool: u64,
    pub(super) serial: u64,
    pub(super) segment: u32,
    pub(super) slot: u32,
    /// From the start of the segment.
    offset: u64,
    device: u32,
    version: u8,
    dtype: u8,
    /// 0: none.
    format: u8,
    ndim: u8,
    shape: [u64; MAX_DIMS],
    strides: [i64; MAX_DIMS],
}

impl TensorDescriptor {
    /// The descriptor as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    /// A descriptor from bytes. What it says is checked when it is used.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        bytemuck::try_pod_read_unaligned(bytes)
            .map_err(|_| Error::BadMessage { what: "it has not the length of a descriptor" })
    }

    /// The uid of the pool.
    pub fn pool(&self) -> u64 {
        self.pool
    }

    /// Describes `tensor`, whose buffer starts `start` bytes into the segment.
    pub(super) fn of(
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
            ndim: u8::try_from(layout.ndim()).unwrap_or(u8::MAX),
            ..Self::zeroed()
        };
        for (to, &from) in descriptor.shape.iter_mut().zip(layout.shape()) {
            *to = from as u64;
        }
        for (to, &from) in descriptor.strides.iter_mut().zip(layout.strides()) {
            *to = from as i64;
        }
        descriptor
    }

    /// What it says about the tensor, checked.
    pub(super) fn read(&self) -> Result<(Layout, DType, Option<PixelFormat>, Device)> {
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
        let layout = Layout::from_words(
            self.shape.get(..usize::from(self.ndim)).ok_or(bad("too many dimensions"))?,
            &self.strides[..usize::from(self.ndim)],
            self.offset,
            dtype.size(),
        )?;
        Ok((layout, dtype, format, device))
    }
}
