//! Storage: a region together with what its kind of memory adds to it.

use crate::error::NotWritable;
use crate::memory::TensorMemory;
use crate::memory::budget::Reservation;
use crate::region::Region;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

/// The bytes of one buffer and where they live.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) region: Region,
    pub(crate) memory: TensorMemory,
    /// Nobody can change the bytes while they are shared: they are this process's own, or sealed.
    pub(crate) stable: bool,
    /// The file behind the bytes, where there is one.
    #[cfg(target_os = "linux")]
    pub(crate) fd: Option<OwnedFd>,
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

    /// Storage of heap bytes without a file behind them.
    pub(crate) fn heap(region: Region, reservation: Option<Reservation>) -> Self {
        Storage {
            region,
            memory: TensorMemory::Mem,
            stable: true,
            #[cfg(target_os = "linux")]
            fd: None,
            _reservation: reservation,
        }
    }
}
