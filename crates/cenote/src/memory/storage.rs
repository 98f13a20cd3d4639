//! Storage: a region together with what its kind of memory adds to it.

use std::fmt;

use crate::error::NotWritable;
use crate::memory::TensorMemory;
use crate::memory::budget::Reservation;
#[cfg(target_os = "linux")]
use crate::os::dmabuf::DmaBuf;
#[cfg(target_os = "linux")]
use crate::region::Kept;
use crate::region::Region;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

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

/// What devices know the bytes by, where they do.
#[cfg(target_os = "linux")]
pub(crate) type ByDevices = Option<DmaBuf>;

/// Nothing, on systems without DMA-BUFs.
#[cfg(not(target_os = "linux"))]
pub(crate) type ByDevices = ();

/// The bytes of one buffer and where they live.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) region: Region,
    pub(crate) memory: TensorMemory,
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
    pub(crate) fn foreign(&self) -> NotWritable {
        match self.memory {
            TensorMemory::Mem => NotWritable::Foreign,
            _ => NotWritable::Received,
        }
    }

    /// All bytes, to be written, where they may be, and what devices know them by.
    pub(crate) fn bytes_mut(&mut self) -> Option<(&mut [u8], &ByDevices)> {
        let Storage { region, dma, .. } = self;
        Some((region.bytes_mut()?, dma))
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
}
