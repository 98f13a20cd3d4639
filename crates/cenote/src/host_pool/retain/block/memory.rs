//! The memory of a block, freed the way it was allocated.

use std::fmt;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::host_pool::stats::BufferStats;
use crate::memory::budget::{Budget, Reservation};
use crate::memory::heap_block::HeapBlock;
#[cfg(target_os = "linux")]
use crate::sys::mapping::Map;

/// Blocks from this size on are mapped on Linux: their pages are zero without a write, and return to
/// the system when the block is freed.
pub(crate) const MAPPED_FROM: usize = 128 << 10;

/// Every block starts at a multiple of this, the size of a cache line and of the widest vector
/// register.
pub(crate) const ALIGN: usize = 64;

/// A mapping must start at a multiple of this to have huge pages.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

#[derive(Debug)]
pub(crate) struct Memory {
    source: Source,
    /// Declared last: dropped after the memory.
    _reservation: Option<Reservation>,
}

#[allow(dead_code, reason = "held for its drop and for debug output")]
#[derive(Debug)]
enum Source {
    Heap(HeapBlock),
    #[cfg(target_os = "linux")]
    Map(Map),
    Vec(Owner),
}

struct Owner {
    _drop: Box<dyn Send + Sync>,
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vec")
    }
}

/// Extras that are requested for large blocks, or that were refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) huge_pages: bool,
    pub(crate) prefault: bool,
    pub(crate) lock: bool,
}

impl Extras {
    /// Counts these extras as refused to a large block.
    pub(crate) fn count_refused(self, stats: &mut BufferStats) {
        stats.huge_pages_refused += u64::from(self.huge_pages);
        stats.prefaults_refused += u64::from(self.prefault);
        stats.locks_refused += u64::from(self.lock);
    }
}

impl Memory {
    /// `size` zero bytes, aligned.
    pub(crate) fn zeroed(size: usize, extras: Extras) -> Result<(NonNull<u8>, Memory)> {
        let reservation = Some(Budget::reserve(size)?);
        let (start, source) = Source::zeroed(size, extras)?;
        Ok((start, Memory { source, _reservation: reservation }))
    }

    /// Keeps the memory of a vector.
    pub(crate) fn vec(owner: impl Send + Sync + 'static) -> Memory {
        Memory { source: Source::Vec(Owner { _drop: Box::new(owner) }), _reservation: None }
    }

    /// Whether freeing it returns it to the allocator of the process, which may keep it.
    pub(crate) fn is_on_heap(&self) -> bool {
        match &self.source {
            #[cfg(target_os = "linux")]
            Source::Map(_) => false,
            _ => true,
        }
    }

    /// Requests extras. Returns those that were refused.
    pub(crate) fn request(&self, extras: Extras) -> Extras {
        match &self.source {
            #[cfg(target_os = "linux")]
            Source::Map(map) => Extras {
                huge_pages: extras.huge_pages && (huge_pages_off() || map.advise_huge().is_err()),
                prefault: extras.prefault && map.populate().is_err(),
                lock: extras.lock && map.lock().is_err(),
            },
            _ => extras,
        }
    }

    /// Unlocks the pages.
    pub(crate) fn unlock(&self) {
        #[cfg(target_os = "linux")]
        if let Source::Map(map) = &self.source {
            // If this fails the pages stay locked until they are unmapped.
            let _ = map.unlock();
        }
    }
}

impl Source {
    #[cfg(target_os = "linux")]
    fn zeroed(size: usize, extras: Extras) -> Result<(NonNull<u8>, Source)> {
        if size < MAPPED_FROM {
            return Source::heap(size);
        }
        let align = if extras.huge_pages { HUGE_PAGE } else { ALIGN };
        let map = Map::anonymous(size, align).map_err(|source| Error::os("mmap", source))?;
        Ok((map.ptr(), Source::Map(map)))
    }

    #[cfg(not(target_os = "linux"))]
    fn zeroed(size: usize, _extras: Extras) -> Result<(NonNull<u8>, Source)> {
        Source::heap(size)
    }

    fn heap(size: usize) -> Result<(NonNull<u8>, Source)> {
        let heap = HeapBlock::zeroed(size, ALIGN).map_err(|source| Error::os("malloc", source))?;
        Ok((heap.ptr(), Source::Heap(heap)))
    }
}

/// The size of the memory for `size` bytes: whole pages if it is mapped.
pub(crate) fn round_up(size: usize) -> usize {
    #[cfg(target_os = "linux")]
    if size >= MAPPED_FROM {
        return size.next_multiple_of(rustix::param::page_size());
    }
    size
}

/// Checked because `madvise` succeeds even if the system has turned huge pages off.
#[cfg(target_os = "linux")]
fn huge_pages_off() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|text| text.contains("[never]"))
}
