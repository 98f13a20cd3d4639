//! An access of the CPU to memory that devices use, too.
//!
//! The kernel synchronises caches before and after it, and an OpenGL buffer is mapped during it. Heap and shared memory
//! need none of that.

use std::marker::PhantomData;

use crate::error::Result;
#[cfg(all(target_os = "linux", feature = "gl"))]
use crate::memory::pbo::Mapped;

#[cfg(target_os = "linux")]
use crate::sys::dmabuf::DmaBuf;

#[cfg(target_os = "linux")]
pub(crate) use crate::sys::dmabuf::Direction;

/// The DMA-BUF by which devices access the bytes, if there is one.
#[cfg(target_os = "linux")]
pub(crate) type MaybeDmaBuf = Option<DmaBuf>;

/// Nothing: only Linux has DMA-BUFs.
#[cfg(not(target_os = "linux"))]
pub(crate) type MaybeDmaBuf = ();

/// An access of the CPU. Dropping it ends the access.
#[derive(Debug, Default)]
pub(crate) struct CpuAccess<'a> {
    /// Ends the access to a DMA-BUF.
    #[cfg(target_os = "linux")]
    _dma: Option<DmaAccess>,
    /// Keeps the bytes of an OpenGL buffer mapped.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    _mapped: Option<Mapped<'a>>,
    _lifetime: PhantomData<&'a ()>,
}

/// An access to a DMA-BUF. Dropping it ends the access.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct DmaAccess(DmaBuf, Direction);

#[cfg(target_os = "linux")]
impl Drop for DmaAccess {
    fn drop(&mut self) {
        // A failure is ignored here. A lasting one also fails the next `begin`, which reports it.
        let _ = self.0.end(self.1);
    }
}

/// What the CPU does during an access.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    Read,
    ReadWrite,
}

impl CpuAccess<'_> {
    /// Begins an access. Fails if the kernel cannot synchronise the DMA-BUF.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn begin(dma_buf: &MaybeDmaBuf, direction: Direction) -> Result<Self> {
        match dma_buf {
            None => Ok(CpuAccess::default()),
            Some(dma) => CpuAccess::begin_dma(dma, direction),
        }
    }

    #[cfg(target_os = "linux")]
    #[cold]
    fn begin_dma(dma: &DmaBuf, direction: Direction) -> Result<Self> {
        use crate::error::Error;

        dma.begin(direction).map_err(|source| Error::os("DMA_BUF_IOCTL_SYNC", source))?;
        Ok(CpuAccess { _dma: Some(DmaAccess(dma.clone(), direction)), ..CpuAccess::default() })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn begin(_: &MaybeDmaBuf, _: Direction) -> Result<Self> {
        Ok(CpuAccess::default())
    }
}

#[cfg(all(target_os = "linux", feature = "gl"))]
#[allow(unsafe_code, reason = "bytes that are mapped only while a guard exists")]
impl<'a> CpuAccess<'a> {
    fn with_map(mapped: Mapped<'a>) -> CpuAccess<'a> {
        CpuAccess { _mapped: Some(mapped), ..CpuAccess::default() }
    }

    /// The bytes of an OpenGL buffer that is mapped for reading. They are valid while the access exists.
    pub(crate) fn read_pbo(mapped: Mapped<'a>) -> (&'a [u8], CpuAccess<'a>) {
        // SAFETY: no code uses the bytes after the access: the guards of `tensor/map.rs` own both, and give out the bytes
        // only while the guard itself is borrowed.
        let bytes = unsafe { mapped.bytes() };
        (bytes, CpuAccess::with_map(mapped))
    }

    /// The same for writing. Also returns where in the buffer the bytes begin.
    pub(crate) fn write_pbo(mut mapped: Mapped<'a>) -> (&'a mut [u8], usize, CpuAccess<'a>) {
        // SAFETY: as above; `mapped` came from `Pbo::write`, and this is its only slice.
        let bytes = unsafe { mapped.bytes_mut() };
        (bytes, mapped.start(), CpuAccess::with_map(mapped))
    }
}
