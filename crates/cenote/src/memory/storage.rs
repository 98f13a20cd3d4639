//! Storage: a region of bytes, and what its kind of memory adds.

use std::fmt;
use std::ops::Range;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

use crate::error::{NotWritable, Result};
use crate::memory::budget::Reservation;
use crate::memory::cpu_access::{CpuAccess, Direction, MaybeDmaBuf};
use crate::memory::kind::TensorMemory;
#[cfg(all(target_os = "linux", feature = "gl"))]
use crate::memory::pbo::Pbo;
use crate::memory::region::Region;
#[cfg(target_os = "linux")]
use crate::sys::mapping::Kept;

/// What keeps other processes from writing the memory of a tensor that was sent to them.
///
/// See [`Tensor::protection`](crate::Tensor::protection).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protection {
    /// The kernel: no other process can write it.
    Kernel,
    /// Convention only: a process that has a DMA-BUF, or memory that is not sealed, can write it.
    Convention,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Protection::Kernel => "kernel",
            Protection::Convention => "convention",
        })
    }
}

/// The bytes of one buffer and where they live.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) region: Region,
    pub(crate) memory: TensorMemory,
    /// The OpenGL buffer that has the bytes. The region is empty then.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    pub(crate) pbo: Option<Pbo>,
    /// Whether no other process can change the bytes: they are private to this process, or sealed.
    pub(crate) stable: bool,
    /// What keeps processes that receive the bytes from writing them.
    pub(crate) protection: Protection,
    /// The file behind the bytes, if there is one besides a DMA-BUF.
    #[cfg(target_os = "linux")]
    pub(crate) fd: Option<OwnedFd>,
    /// The DMA-BUF by which devices access the bytes.
    pub(crate) dma: MaybeDmaBuf,
    /// A value that is dropped when no process uses the bytes any more.
    #[cfg(target_os = "linux")]
    pub(crate) kept: Option<Kept>,
    /// The claim to memory that the kernel provides at first touch. Declared last, so that it ends after the memory is
    /// freed.
    pub(crate) _reservation: Option<Reservation>,
}

impl Storage {
    /// Why memory that is not writable is not.
    #[inline]
    pub(crate) fn why_not_writable(&self) -> NotWritable {
        match self.memory {
            TensorMemory::Mem => NotWritable::Foreign,
            _ => NotWritable::Received,
        }
    }

    /// Whether a forked child keeps sharing the bytes with its parent: a DMA-BUF cannot be mapped privately.
    #[cfg(target_os = "linux")]
    pub(crate) fn stays_shared_after_fork(&self) -> bool {
        self.dma.is_some() && self.protection == Protection::Convention
    }

    /// Storage of heap bytes, without a file behind them.
    pub(crate) fn heap(region: Region, reservation: Option<Reservation>) -> Self {
        Storage {
            region,
            memory: TensorMemory::Mem,
            #[cfg(all(target_os = "linux", feature = "gl"))]
            pbo: None,
            stable: true,
            protection: Protection::Kernel,
            #[cfg(target_os = "linux")]
            fd: None,
            dma: MaybeDmaBuf::default(),
            #[cfg(target_os = "linux")]
            kept: None,
            _reservation: reservation,
        }
    }

    /// Storage of bytes in an OpenGL buffer.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    pub(crate) fn pbo(pbo: Pbo, reservation: Reservation) -> Self {
        let empty = Region::vec(Vec::<u8>::new());
        let (memory, pbo) = (TensorMemory::Pbo, Some(pbo));
        Storage { memory, pbo, ..Storage::heap(empty, Some(reservation)) }
    }

    /// The number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        #[cfg(all(target_os = "linux", feature = "gl"))]
        if let Some(pbo) = &self.pbo {
            return pbo.len();
        }
        self.region.len()
    }

    /// All bytes, valid while the access exists.
    #[inline]
    pub(crate) fn read(&self) -> Result<(&[u8], CpuAccess<'_>)> {
        #[cfg(all(target_os = "linux", feature = "gl"))]
        if let Some(pbo) = &self.pbo {
            return Ok(CpuAccess::read_pbo(pbo.read()?));
        }
        let access = CpuAccess::begin(&self.dma, Direction::Read)?;
        Ok((self.region.bytes(), access))
    }

    /// At least the bytes of `range`, for writing while the access exists, and where in the buffer they begin. `None` if
    /// the memory must not be written.
    #[inline]
    pub(crate) fn write(
        &mut self,
        #[cfg_attr(
            not(all(target_os = "linux", feature = "gl")),
            expect(unused_variables, reason = "only OpenGL buffers are mapped in part")
        )]
        range: impl FnOnce() -> Range<usize>,
    ) -> Result<Option<(&mut [u8], usize, CpuAccess<'_>)>> {
        #[cfg(all(target_os = "linux", feature = "gl"))]
        if self.pbo.is_some() {
            return self.write_pbo(range());
        }
        let Some(bytes) = self.region.bytes_mut() else { return Ok(None) };
        Ok(Some((bytes, 0, CpuAccess::begin(&self.dma, Direction::ReadWrite)?)))
    }

    #[cfg(all(target_os = "linux", feature = "gl"))]
    fn write_pbo(
        &mut self,
        range: Range<usize>,
    ) -> Result<Option<(&mut [u8], usize, CpuAccess<'_>)>> {
        let written = self.pbo.as_mut().map(|pbo| pbo.write(range)).transpose()?;
        Ok(written.map(CpuAccess::write_pbo))
    }
}
