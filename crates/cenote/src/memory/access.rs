//! The bracket around what the CPU does to memory that devices use too: their caches are put in order
//! before it and after it. Heap and shared memory need none.

use crate::error::Result;
use crate::memory::storage::ByDevices;

#[cfg(target_os = "linux")]
pub(crate) use crate::os::dmabuf::Direction;

/// An access by the CPU, which ends when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct CpuAccess {
    /// What must be told of its end.
    #[cfg(target_os = "linux")]
    dma: Option<(crate::os::dmabuf::DmaBuf, Direction)>,
}

/// What the CPU does.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    Read,
    ReadWrite,
}

impl CpuAccess {
    /// Begins an access.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn begin(by_devices: &ByDevices, direction: Direction) -> Result<CpuAccess> {
        match by_devices {
            None => Ok(CpuAccess { dma: None }),
            Some(dma) => CpuAccess::begin_dma(dma, direction),
        }
    }

    #[cfg(target_os = "linux")]
    #[cold]
    fn begin_dma(dma: &crate::os::dmabuf::DmaBuf, direction: Direction) -> Result<CpuAccess> {
        use crate::error::Error;

        dma.begin(direction).map_err(|source| Error::os("DMA_BUF_IOCTL_SYNC", source))?;
        Ok(CpuAccess { dma: Some((dma.clone(), direction)) })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn begin(_: &ByDevices, _: Direction) -> Result<CpuAccess> {
        Ok(CpuAccess {})
    }
}

#[cfg(target_os = "linux")]
impl Drop for CpuAccess {
    #[inline]
    fn drop(&mut self) {
        if let Some((dma, direction)) = self.dma.take() {
            // Whoever could do something about a failure is told by the next one to begin.
            let _ = dma.end(direction);
        }
    }
}
