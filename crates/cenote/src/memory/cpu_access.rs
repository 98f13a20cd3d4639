//! The bracket around what the CPU does to memory that devices use too: their caches are put in order
//! before it and after it, and what is theirs alone is mapped. Heap and shared memory need none.

use std::marker::PhantomData;

use crate::error::Result;
#[cfg(all(target_os = "linux", feature = "gl"))]
use crate::memory::pbo::Mapped;

#[cfg(target_os = "linux")]
use crate::sys::dmabuf::DmaBuf;

#[cfg(target_os = "linux")]
pub(crate) use crate::sys::dmabuf::Direction;

/// What devices know the bytes by, where they do.
#[cfg(target_os = "linux")]
pub(crate) type ByDevices = Option<DmaBuf>;

/// Nothing, on systems without DMA-BUFs.
#[cfg(not(target_os = "linux"))]
pub(crate) type ByDevices = ();

/// An access by the CPU, which ends when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct CpuAccess<'a> {
    /// What must be told of its end.
    #[cfg(target_os = "linux")]
    _dma: Option<DmaAccess>,
    /// Without it the bytes of an OpenGL buffer may be gone.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    _mapped: Option<Mapped<'a>>,
    _lifetime: PhantomData<&'a ()>,
}

/// An access to a DMA-BUF, likewise.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct DmaAccess(DmaBuf, Direction);

#[cfg(target_os = "linux")]
impl Drop for DmaAccess {
    fn drop(&mut self) {
        // Whoever could do something about a failure is told by the next one to begin.
        let _ = self.0.end(self.1);
    }
}

/// What the CPU does.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    Read,
    ReadWrite,
}

impl CpuAccess<'_> {
    /// Begins an access.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn begin(by_devices: &ByDevices, direction: Direction) -> Result<Self> {
        match by_devices {
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
    pub(crate) fn begin(_: &ByDevices, _: Direction) -> Result<Self> {
        Ok(CpuAccess::default())
    }
}

#[cfg(all(target_os = "linux", feature = "gl"))]
#[allow(unsafe_code, reason = "bytes that are reachable only while something is kept")]
impl<'a> CpuAccess<'a> {
    fn of(mapped: Mapped<'a>) -> CpuAccess<'a> {
        CpuAccess { _mapped: Some(mapped), ..CpuAccess::default() }
    }

    /// The bytes of an OpenGL buffer that is mapped to be read, and what they are reachable with.
    pub(crate) fn read_pbo(mapped: Mapped<'a>) -> (&'a [u8], CpuAccess<'a>) {
        // SAFETY: nobody uses the bytes without the access: the guards of `tensor/map.rs`, where both
        // go, lend them only while they are borrowed themselves.
        let bytes = unsafe { mapped.bytes() };
        (bytes, CpuAccess::of(mapped))
    }

    /// The same, of one that is mapped to be written, and where in it they begin.
    pub(crate) fn write_pbo(mut mapped: Mapped<'a>) -> (&'a mut [u8], usize, CpuAccess<'a>) {
        // SAFETY: as above; `mapped` came from `Pbo::write`, and gives them out once.
        let bytes = unsafe { mapped.bytes_mut() };
        (bytes, mapped.start(), CpuAccess::of(mapped))
    }
}
