//! DMA-BUF memory: from the kernel's heaps, or made of a memfd (udmabuf), mapped once.
//!
//! Every process that has the descriptor of a heap buffer can write the buffer. That is true of a udmabuf, too, but a
//! memfd lies below it. The owner seals the memfd against writing and sends that to other processes instead.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::error::{Error, Result, Tried, Unavailable};
use crate::memory::budget::Budget;
use crate::memory::choose::request::{Import, Request};
use crate::memory::choose::selection::Grants;
use crate::memory::dma::dma_heaps;
use crate::memory::dma::dma_heaps::{Device, DeviceChoice};
use crate::memory::kind::TensorMemory;
use crate::memory::region::Region;
use crate::memory::storage::{Protection, Storage};
use crate::sys::dmabuf::DmaBuf;
use crate::sys::mapping::{Access, Map};
use crate::sys::memfd;
use crate::sys::memfd::Facts;

/// Fails if no device can allocate DMA-BUFs.
pub(crate) fn availability() -> Result<(), Unavailable> {
    dma_heaps::devices(DeviceChoice::Any).map(drop)
}

/// A new DMA-BUF, mapped for writing.
#[derive(Debug)]
pub(crate) struct NewDmaBuf {
    pub(crate) map: Map,
    /// The file below a udmabuf, not yet sealed against writing.
    pub(crate) memfd: Option<OwnedFd>,
    /// The name of the heap, or `udmabuf`.
    pub(crate) device: String,
}

impl NewDmaBuf {
    /// Allocates and maps `len` bytes of zeros from the first device that succeeds. Fails with the errors of all devices.
    pub(crate) fn allocate(
        name: &str,
        len: usize,
        align: usize,
        choice: DeviceChoice,
    ) -> Result<NewDmaBuf> {
        let devices = dma_heaps::devices(choice)
            .map_err(|why| Error::Unavailable { memory: TensorMemory::Dma.name(), why })?;
        let reservation = Budget::reserve(len)?;
        let mut tried = Vec::new();
        for device in devices {
            match NewDmaBuf::from_device(&device, name, len, align) {
                Ok(new) => {
                    reservation.settle();
                    return Ok(new);
                }
                Err(source) => tried.push(Tried { path: device.path(), source }),
            }
        }
        let why = Unavailable::NoDevice { tried };
        Err(Error::Unavailable { memory: TensorMemory::Dma.name(), why })
    }

    fn from_device(device: &Device, name: &str, len: usize, align: usize) -> io::Result<NewDmaBuf> {
        let (map, memfd) = match device {
            Device::Heap { fd, .. } => {
                let dma = DmaBuf::from_heap(fd.as_fd(), len)?;
                (Map::dma(dma, len, align, Access::Write)?, None)
            }
            Device::Udmabuf { fd } => {
                let whole = len.checked_next_multiple_of(rustix::param::page_size());
                let whole = whole.ok_or(io::ErrorKind::OutOfMemory)?;
                let memfd = memfd::create(name, whole as u64)?;
                let dma = DmaBuf::from_memfd(fd.as_fd(), memfd.as_fd(), whole)?;
                let map = Map::shared(memfd.as_fd(), len, align, Access::Write)?;
                (map.with_dmabuf(dma), Some(memfd))
            }
        };
        // The name is for debugging only, so a failure is ignored.
        let _ = map.dmabuf().map(|dma| dma.set_name(name));
        Ok(NewDmaBuf { map, memfd, device: device.name().to_owned() })
    }
}

/// Allocates a DMA-BUF for one tensor. Unless the user asked for DMA-BUFs, it must be one that other processes cannot
/// write.
pub(crate) fn allocate(request: &Request<'_>, grants: &mut Grants) -> Result<Storage> {
    let choice = if request.asked { DeviceChoice::Any } else { DeviceChoice::ProtectedOrNamed };
    let name = request.name.unwrap_or("cenote");
    let NewDmaBuf { map, memfd, device } =
        NewDmaBuf::allocate(name, request.len, request.map_align(), choice)?;
    grants.advise(request.advice, &map);
    grants.note_device(device);
    let dma = map.dmabuf().cloned();
    Ok(Storage {
        protection: protection(&map),
        memory: TensorMemory::Dma,
        fd: memfd,
        dma,
        ..Storage::heap(Region::map(map, Access::Write), None)
    })
}

/// What keeps other processes from writing the mapped memory.
pub(crate) fn protection(map: &Map) -> Protection {
    if map.is_direct() { Protection::Convention } else { Protection::Kernel }
}

/// Maps a whole DMA-BUF that arrived as a file descriptor.
pub(crate) fn import(fd: OwnedFd, facts: &Facts, needed: usize, import: Import) -> Result<Storage> {
    if import == Import::Trusted && !facts.writable {
        let why = "it was opened read-only";
        return Err(Error::FdAccess { access: "for writing", why });
    }
    let map = open(fd, facts, needed as u64, import.access())?;
    let dma = map.dmabuf().cloned();
    Ok(Storage {
        memory: TensorMemory::Dma,
        stable: import == Import::Trusted,
        protection: Protection::Convention,
        dma,
        ..Storage::heap(Region::map(map, import.access()), None)
    })
}

/// Maps a DMA-BUF of at least `needed` bytes. Its memory is allocated, so no budget is needed.
pub(crate) fn open(fd: OwnedFd, facts: &Facts, needed: u64, access: Access) -> Result<Map> {
    if !facts.readable {
        return Err(Error::FdAccess { access: "for reading", why: "it was opened write-only" });
    }
    let small = || Error::FdTooSmall {
        needed: usize::try_from(needed).unwrap_or(usize::MAX),
        size: facts.size,
    };
    let len = usize::try_from(facts.size).ok().filter(|&len| len > 0 && len as u64 >= needed);
    Map::dma(DmaBuf::new(fd), len.ok_or_else(small)?, 1, access)
        .map_err(|source| Error::os("mapping a DMA-BUF", source))
}
