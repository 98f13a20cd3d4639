//! DMA-BUF memory: from the kernel's heaps, or of a memfd (udmabuf), mapped once.
//!
//! A heap buffer can be written by everybody who has it. A udmabuf can too, but beneath it is a memfd, which
//! can be sealed against writing and given to others instead.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::error::{Error, Result, Tried, Unavailable};
use crate::memory::budget::Budget;
use crate::memory::dma_heaps;
use crate::memory::dma_heaps::{Device, Kinds};
use crate::memory::kind::TensorMemory;
use crate::memory::region::Region;
use crate::memory::request::{Import, Request};
use crate::memory::selection::Grants;
use crate::memory::storage::{Protection, Storage};
use crate::sys::dmabuf::DmaBuf;
use crate::sys::mapping::{Access, Map};
use crate::sys::memfd;
use crate::sys::memfd::Facts;

/// Whether there is a device that DMA-BUFs can be allocated from.
pub(crate) fn availability() -> Result<(), Unavailable> {
    dma_heaps::devices(Kinds::Any).map(drop)
}

/// A new DMA-BUF, mapped to be written.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) map: Map,
    /// The file beneath a udmabuf, not yet sealed against writing.
    pub(crate) memfd: Option<OwnedFd>,
    /// The name of the heap, or `udmabuf`.
    pub(crate) device: String,
}

impl Fresh {
    /// Allocates and maps `len` bytes of zeros, from the first device that has them.
    pub(crate) fn make(name: &str, len: usize, align: usize, kinds: Kinds) -> Result<Fresh> {
        let devices = dma_heaps::devices(kinds)
            .map_err(|why| Error::Unavailable { memory: TensorMemory::Dma.name(), why })?;
        let reservation = Budget::reserve(len)?;
        let mut tried = Vec::new();
        for device in devices {
            match Fresh::of(&device, name, len, align) {
                Ok(fresh) => {
                    reservation.settle();
                    return Ok(fresh);
                }
                Err(source) => tried.push(Tried { path: device.path(), source }),
            }
        }
        let why = Unavailable::NoDevice { tried };
        Err(Error::Unavailable { memory: TensorMemory::Dma.name(), why })
    }

    fn of(device: &Device, name: &str, len: usize, align: usize) -> io::Result<Fresh> {
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
        // For people to look at: it is no less a buffer without.
        let _ = map.dmabuf().map(|dma| dma.set_name(name));
        Ok(Fresh { map, memfd, device: device.name().to_owned() })
    }
}

/// Allocates a DMA-BUF for one tensor. Whoever did not ask for one gets none that others could write.
pub(crate) fn allocate(request: &Request<'_>, grants: &mut Grants) -> Result<Storage> {
    let kinds = if request.asked { Kinds::Any } else { Kinds::Unasked };
    let name = request.name.unwrap_or("cenote");
    let Fresh { map, memfd, device } = Fresh::make(name, request.len, request.map_align(), kinds)?;
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

/// What keeps others from writing what is mapped.
pub(crate) fn protection(map: &Map) -> Protection {
    if map.is_direct() { Protection::Convention } else { Protection::Kernel }
}

/// Maps a DMA-BUF that came as a file descriptor, all of it.
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

/// Maps a DMA-BUF of at least `needed` bytes. Its memory is there already, and stays.
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
