//! Storage: a region together with what its kind of memory adds to it.

use std::fmt;
use std::ops::Range;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

use crate::error::{NotWritable, Result};
use crate::memory::budget::Reservation;
use crate::memory::cpu_access::{ByDevices, CpuAccess, Direction};
use crate::memory::kind::TensorMemory;
#[cfg(all(target_os = "linux", feature = "gl"))]
use crate::memory::pbo::Pbo;
use crate::memory::region::Region;
#[cfg(target_os = "linux")]
use crate::sys::mapping::Kept;

/// What keeps other processes from writing the memory of a tensor that they have.
///
/// See [`Tensor::protection`](crate::Tensor::protection).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protection {
    /// The kernel: nobody else can write it, whatever he tries.
    Kernel,
    /// Nothing but that he is not to: whoever has a DMA-BUF, or memory that its maker did not seal,
    /// can write it.
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
    /// The buffer of a device that has the bytes; the region has none then.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    pub(crate) pbo: Option<Pbo>,
    /// Nobody can change the bytes while they are shared: they are this process's own, or sealed.
    pub(crate) stable: bool,
    /// What keeps those from writing the bytes who are given them.
    pub(crate) protection: Protection,
    /// The file behind the bytes, where there is one beside a DMA-BUF.
    #[cfg(target_os = "linux")]
    pub(crate) fd: Option<OwnedFd>,
    /// The DMA-BUF that devices know the bytes by.
    pub(crate) dma: ByDevices,
    /// What is given back when nobody has the bytes any more, here or elsewhere.
    #[cfg(target_os = "linux")]
    pub(crate) kept: Option<Kept>,
    /// Memory that the kernel gives out at first touch counts as taken from the start.
    /// Declared last, so that it is given back after the memory.
    pub(crate) _reservation: Option<Reservation>,
}

impl Storage {
    /// Why memory that may not be written here may not.
    #[inline]
    pub(crate) fn foreign(&self) -> NotWritable {
        match self.memory {
            TensorMemory::Mem => NotWritable::Foreign,
            _ => NotWritable::Received,
        }
    }

    /// Whether a forked child shares the bytes with its parent, for good: there is no private mapping
    /// of a DMA-BUF.
    #[cfg(target_os = "linux")]
    pub(crate) fn outlives_fork(&self) -> bool {
        self.dma.is_some() && self.protection == Protection::Convention
    }

    /// Storage of heap bytes without a file behind them.
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
            dma: ByDevices::default(),
            #[cfg(target_os = "linux")]
            kept: None,
            _reservation: reservation,
        }
    }

    /// Storage of bytes in a buffer of a device.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    pub(crate) fn pbo(pbo: Pbo, reservation: Reservation) -> Self {
        let nothing = Region::vec(Vec::<u8>::new());
        let (memory, pbo) = (TensorMemory::Pbo, Some(pbo));
        Storage { memory, pbo, ..Storage::heap(nothing, Some(reservation)) }
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

    /// All bytes, to be looked at while the access lasts.
    #[inline]
    pub(crate) fn read(&self) -> Result<(&[u8], CpuAccess<'_>)> {
        #[cfg(all(target_os = "linux", feature = "gl"))]
        if let Some(pbo) = &self.pbo {
            return Ok(CpuAccess::read_pbo(pbo.read()?));
        }
        let access = CpuAccess::begin(&self.dma, Direction::Read)?;
        Ok((self.region.bytes(), access))
    }

    /// At least the bytes of `range`, to be written while the access lasts, and where in the buffer
    /// they begin. None if the memory must not be written.
    #[inline]
    pub(crate) fn write(
        &mut self,
        #[cfg_attr(
            not(all(target_os = "linux", feature = "gl")),
            expect(unused_variables, reason = "only some memories are mapped in part")
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
