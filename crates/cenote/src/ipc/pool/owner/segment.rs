//! Segments: the memory of a pool, in pieces that only its owner can write.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::error::{Error, Result, Unavailable};
use crate::ipc::pool::config::TensorPoolConfig;
use crate::memory::budget::Budget;
use crate::memory::choose::selection::Wish;
use crate::memory::cpu_access::{CpuAccess, Direction};
use crate::memory::dma::dma::NewDmaBuf;
use crate::memory::dma::dma_heaps::DeviceChoice;
use crate::memory::kind::TensorMemory;
use crate::memory::region::Region;
use crate::sys::mapping::{Access, Map};
use crate::sys::memfd;

/// One segment, as its owner has it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) map: Arc<Map>,
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) len: usize,
}

/// Overwrites a range with zeros. It belongs to a slot that no process holds.
#[allow(unsafe_code, reason = "slots of one segment share a mapping")]
pub(crate) fn scrub(map: Arc<Map>, range: Range<usize>) {
    // Devices must not see the old bytes, and their caches must not overwrite the zeros. If the kernel does not know
    // such brackets, the bytes are overwritten without.
    let dma_buf = map.dmabuf().cloned();
    let _access = CpuAccess::begin(&dma_buf, Direction::ReadWrite);
    // SAFETY: the slot's last handle has ended, no lease on it is left, and it is not freed yet. So the allocator does
    // not hand it out, and no other region over it exists. No other process can write it: only this one has a writable
    // mapping.
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

/// Makes a DMA-BUF. Readers get the file beneath it, which is sealed, where there is one.
fn dma(name: &str, len: usize, align: usize, unprotected: bool) -> Result<(Map, Arc<OwnedFd>)> {
    let choice = if unprotected { DeviceChoice::Any } else { DeviceChoice::Protected };
    let NewDmaBuf { map, memfd, .. } = NewDmaBuf::allocate(name, len, align, choice)?;
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
    // A buffer may still hold the map when the segment is freed.
    Ok((map.keeping_open(fd.clone()), fd))
}

impl Segment {
    /// Reserves and maps `len` bytes, then seals them against writing by other processes. Calls `refused` for each wish that
    /// was not granted.
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
