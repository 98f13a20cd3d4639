//! Segments: the memory of a pool, in pieces that only its owner can write.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::memory::budget::Budget;
use crate::memory::select::Wish;
use crate::os::memfd;
use crate::pool::config::TensorPoolConfig;
use crate::region::{Access, Map, Region};

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
    // SAFETY: the slot's last handle is gone, no lease on it is left, and it was not freed, so the
    // allocator does not hand it out: nobody else has a region over any of it. Nobody else can
    // write it either, for only this process can.
    if let Some(mut region) = unsafe { Region::part(map, range, Access::Write) } {
        region.bytes_mut().into_iter().for_each(|bytes| bytes.fill(0));
    }
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
        let reservation = Budget::reserve(len)?;
        let fd = memfd::create(name, len as u64).map(Arc::new);
        let fd = fd.map_err(|source| Error::os("reserving shared memory", source))?;
        reservation.settle();
        let align = if config.huge_pages { 2 << 20 } else { config.slot_alignment };
        let map = Map::shared(fd.as_fd(), len, align, Access::Write)
            .map_err(|source| Error::os("mapping shared memory", source))?
            // A buffer on its way out may have the map when the segment is freed.
            .keeping(fd.clone());
        memfd::forbid_writing(&fd).map_err(|source| Error::os("sealing memory", source))?;
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
