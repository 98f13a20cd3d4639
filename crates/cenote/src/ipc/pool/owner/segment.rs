//! Segments: the memory of a pool, in pieces that only its owner can write.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::error::{Error, Result, Unavailable};
use crate::ipc::pool::config::TensorPoolConfig;
use crate::memory::budget::Budget;
use crate::memory::cpu_access::{CpuAccess, Direction};
use crate::memory::dma::Fresh;
use crate::memory::dma_heaps::Kinds;
use crate::memory::kind::TensorMemory;
use crate::memory::region::Region;
use crate::memory::selection::Wish;
use crate::sys::mapping::{Access, Map};
use crate::sys::memfd;

/// One piece of a pool's memory, as its owner has it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) map: Arc<Map>,
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) len: usize,
}

/// Overwrites a range with zeros. The range belongs to a slot that nobody holds.
#[allow(unsafe_code, reason = "slots of one segment share a mapping")]
pub(crate) fn scrub(map: Arc<Map>, range: Range<usize>) {
    // Devices must not see what was there, nor what they wrote come back over the zeros. A kernel
    // that cannot be told of a bracket has none to give: the bytes go all the same.
    let by_devices = map.dmabuf().cloned();
    let _access = CpuAccess::begin(&by_devices, Direction::ReadWrite);
    // SAFETY: the slot's last handle is gone, no lease on it is left, and it was not freed, so the
    // allocator does not hand it out: nobody else has a region over any of it. Nobody else can
    // write it either, for only this process can.
    if let Some(mut region) = unsafe { Region::part(map, range, Access::Write) } {
        region.bytes_mut().into_iter().for_each(|bytes| bytes.fill(0));
    }
}

fn shared(name: &str, len: usize, align: usize) -> Result<(Map, Arc<OwnedFd>)> {
    let reservation = Budget::reserve(len)?;
    let fd = memfd::create(name, len as u64);
    let fd = fd.map_err(|source| Error::os("reserving shared memory", source))?;
    reservation.settle();
    let map = Map::shared(fd.as_fd(), len, align, Access::Write)
        .map_err(|source| Error::os("mapping shared memory", source))?;
    sealed(map, fd)
}

/// A DMA-BUF. Others get the file beneath it, where there is one, and that is sealed.
fn dma(name: &str, len: usize, align: usize, unprotected: bool) -> Result<(Map, Arc<OwnedFd>)> {
    let kinds = if unprotected { Kinds::Any } else { Kinds::Protected };
    let Fresh { map, memfd, .. } = Fresh::make(name, len, align, kinds)?;
    let dma = map.dmabuf().map(|dma| dma.shared_fd().clone());
    match (memfd, dma) {
        (None, Some(dma)) => Ok((map, dma)),
        (Some(memfd), _) => sealed(map, memfd),
        (None, None) => Err(Error::Unavailable { memory: "dma", why: Unavailable::Unprotected }),
    }
}

fn sealed(map: Map, fd: OwnedFd) -> Result<(Map, Arc<OwnedFd>)> {
    memfd::forbid_writing(&fd).map_err(|source| Error::os("sealing memory", source))?;
    let fd = Arc::new(fd);
    // A buffer on its way out may have the map when the segment is freed.
    Ok((map.keeping_open(fd.clone()), fd))
}

impl Segment {
    /// Reserves and maps `len` bytes, then forbids everybody else to write them. Wishes that were
    /// not granted are passed to `refused`.
    pub(crate) fn create(
        name: &str,
        len: usize,
        config: &TensorPoolConfig,
        mut refused: impl FnMut(Wish, io::Error),
    ) -> Result<Segment> {
        let align = if config.huge_pages { 2 << 20 } else { config.slot_alignment };
        let (map, fd) = match config.memory {
            TensorMemory::Dma => dma(name, len, align, config.unprotected)?,
            _ => shared(name, len, align)?,
        };
        let mut wish = |wanted, wish, result: &dyn Fn() -> io::Result<()>| {
            if wanted && let Err(why) = result() {
                refused(wish, why);
            }
        };
        wish(config.huge_pages, Wish::HugePages, &|| map.advise_huge());
        wish(config.prefault, Wish::Prefault, &|| map.populate());
        wish(config.mlock, Wish::Lock, &|| map.lock());
        Ok(Segment { map: Arc::new(map), fd, len })
    }
}
