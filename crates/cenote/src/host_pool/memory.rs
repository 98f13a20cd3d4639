//! Where the bytes of a block come from, and hence how they are freed.

use std::fmt;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::memory::budget::{Budget, Reservation};
use crate::memory::heap_block::Heap;
#[cfg(target_os = "linux")]
use crate::sys::mapping::Map;

/// Blocks from this size on are mapped, where the platform can: their pages are zero without being
/// touched, and are given back in full.
pub(super) const MAPPED_FROM: usize = 128 << 10;

/// Every block starts at a multiple of this: a cache line, and the widest vector register.
pub(super) const ALIGN: usize = 64;

/// Huge pages are of use only to mappings that start on one.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

/// What a block keeps alive.
#[derive(Debug)]
pub(super) struct Memory {
    source: Source,
    /// Declared last: given back after the memory.
    _reservation: Option<Reservation>,
}

#[allow(dead_code, reason = "kept to be dropped, and shown when debugging")]
#[derive(Debug)]
enum Source {
    Heap(Heap),
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

/// Wishes that large blocks may have, or those of them that were refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extras {
    pub(super) huge_pages: bool,
    pub(super) prefault: bool,
    pub(super) lock: bool,
}

impl Memory {
    /// `size` zero bytes, aligned.
    pub(super) fn zeroed(size: usize, extras: Extras) -> Result<(NonNull<u8>, Memory)> {
        let reservation = Some(Budget::reserve(size)?);
        let (start, source) = Source::zeroed(size, extras)?;
        Ok((start, Memory { source, _reservation: reservation }))
    }

    /// Keeps a vector, whose elements are reached by other means from now on.
    pub(super) fn vec(owner: impl Send + Sync + 'static) -> Memory {
        Memory { source: Source::Vec(Owner { _drop: Box::new(owner) }), _reservation: None }
    }

    /// Whether freeing it gives it to the process's allocator, which may keep it.
    pub(super) fn is_on_heap(&self) -> bool {
        match &self.source {
            #[cfg(target_os = "linux")]
            Source::Map(_) => false,
            _ => true,
        }
    }

    /// Asks for extras; returns what was refused.
    pub(super) fn ask(&self, extras: Extras) -> Extras {
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

    /// Undoes the lock that was asked for.
    pub(super) fn unlock(&self) {
        #[cfg(target_os = "linux")]
        if let Source::Map(map) = &self.source {
            // If it fails the pages stay where they are until they are unmapped.
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
        let heap = Heap::zeroed(size, ALIGN).map_err(|source| Error::os("malloc", source))?;
        Ok((heap.ptr(), Source::Heap(heap)))
    }
}

/// The bytes that a block of `size` bytes takes up.
pub(super) fn round_up(size: usize) -> usize {
    #[cfg(target_os = "linux")]
    if size >= MAPPED_FROM {
        return size.next_multiple_of(rustix::param::page_size());
    }
    size
}

/// The advice is accepted where it has been turned off, too.
#[cfg(target_os = "linux")]
fn huge_pages_off() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|text| text.contains("[never]"))
}
