//! Heap memory.

use crate::error::{Error, Result};
use crate::memory::budget::Budget;
use crate::memory::choose::request::Request;
use crate::memory::choose::selection::Grants;
use crate::memory::region::Region;
use crate::memory::storage::Storage;

/// From this size on the bytes come from the kernel, which provides zero pages and takes them back at once. Below it the
/// allocator is faster.
#[cfg(target_os = "linux")]
const MAP_FROM: usize = 128 << 10;

/// Allocates zeroed heap memory. Its pages are touched only if the request says so.
pub(crate) fn allocate(request: &Request<'_>, grants: &mut Grants) -> Result<Storage> {
    let reservation = Budget::reserve(request.len)?;
    let region = region(request, grants)?;
    Ok(Storage::heap(region, Some(reservation)))
}

#[cfg(target_os = "linux")]
fn region(request: &Request<'_>, grants: &mut Grants) -> Result<Region> {
    use crate::sys::mapping::{Access, Map};

    if request.len < MAP_FROM && request.advice.is_empty() {
        return small(request);
    }
    let map = Map::anonymous(request.len, request.map_align())
        .map_err(|source| Error::os("mmap of heap memory", source))?;
    grants.advise(request.advice, &map);
    Ok(Region::map(map, Access::Write))
}

#[cfg(not(target_os = "linux"))]
fn region(request: &Request<'_>, grants: &mut Grants) -> Result<Region> {
    grants.refuse_all(request.advice);
    small(request)
}

fn small(request: &Request<'_>) -> Result<Region> {
    Region::heap(request.len, request.align)
        .map_err(|source| Error::os("allocation of heap memory", source))
}
