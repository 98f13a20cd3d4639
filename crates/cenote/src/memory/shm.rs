//! Shared memory: sealed memfds, mapped once.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::SealFlags;

use crate::error::{Error, Result, Unavailable};
use crate::memory::budget::Budget;
use crate::memory::choose::request::{Import, Request};
use crate::memory::choose::selection::Grants;
use crate::memory::kind::TensorMemory;
use crate::memory::region::Region;
use crate::memory::storage::{Protection, Storage};
use crate::sys::mapping::{Access, Map};
use crate::sys::memfd;
use crate::sys::memfd::Facts;

/// Fails if the kernel has no memfds that can be sealed against later writers (Linux 5.1). Success is cached; a failure
/// is not, because it may be a shortage of descriptors or memory that passes.
pub(crate) fn availability() -> Result<(), Unavailable> {
    static SEEN: OnceLock<()> = OnceLock::new();
    if SEEN.get().is_some() {
        return Ok(());
    }
    memfd::create("cenote-probe", 1)
        .and_then(memfd::forbid_writing)
        .map_err(|source| Unavailable::Refused { op: "making a sealed memfd", source })?;
    SEEN.get_or_init(|| ());
    Ok(())
}

/// Allocates shared memory that can neither shrink nor grow. All its bytes are reserved.
pub(crate) fn allocate(request: &Request<'_>, grants: &mut Grants) -> Result<Storage> {
    let reservation = Budget::reserve(request.len)?;
    let name = request.name.unwrap_or("cenote");
    let fd = memfd::create(name, request.len as u64)
        .map_err(|source| Error::os("reserving shared memory", source))?;
    reservation.settle();
    let map = Map::shared(fd.as_fd(), request.len, request.map_align(), Access::Write)
        .map_err(|source| Error::os("mapping shared memory", source))?;
    grants.advise(request.advice, &map);
    Ok(Storage {
        memory: TensorMemory::Shm,
        fd: Some(fd),
        ..Storage::heap(Region::map(map, Access::Write), None)
    })
}

/// Maps shared memory that arrived as a file descriptor. It maps all of it, so that one mapping serves every view.
pub(crate) fn import(fd: OwnedFd, facts: &Facts, needed: usize, import: Import) -> Result<Storage> {
    check(facts, needed, import)?;
    let len =
        usize::try_from(facts.size).map_err(|_| Error::FdTooSmall { needed, size: facts.size })?;
    // The kernel allocates memory for a page that was never written even when it is read.
    let unreserved = facts.size.saturating_sub(facts.reserved);
    let reservation = Budget::reserve(usize::try_from(unreserved).unwrap_or(usize::MAX))?;
    let access = import.access();
    let map = Map::shared(fd.as_fd(), len, 1, access)
        .map_err(|source| Error::os("mapping shared memory", source))?;
    let sealed = is_write_sealed(facts);
    Ok(Storage {
        memory: TensorMemory::Shm,
        stable: import == Import::Trusted || sealed,
        protection: if sealed { Protection::Kernel } else { Protection::Convention },
        fd: Some(fd),
        ..Storage::heap(Region::map(map, access), Some(reservation))
    })
}

fn check(facts: &Facts, needed: usize, import: Import) -> Result<()> {
    let Some(seals) = facts.seals else {
        return Err(Error::WrongFdKind { found: facts.kind });
    };
    if !facts.readable {
        return Err(Error::FdAccess { access: "for reading", why: "it was opened write-only" });
    }
    if facts.size < needed as u64 {
        return Err(Error::FdTooSmall { needed, size: facts.size });
    }
    match import {
        Import::ReadOnly if !seals.contains(SealFlags::SHRINK) => Err(Error::Unsealed),
        Import::Trusted => check_writable(facts, seals),
        Import::ReadOnly => Ok(()),
    }
}

/// Whether the memory is sealed against new writers. (A process that mapped it for writing before is trusted.)
fn is_write_sealed(facts: &Facts) -> bool {
    let write = SealFlags::WRITE | SealFlags::FUTURE_WRITE;
    facts.seals.is_some_and(|seals| seals.intersects(write))
}

fn check_writable(facts: &Facts, seals: SealFlags) -> Result<()> {
    let refuse = |why| Err(Error::FdAccess { access: "for writing", why });
    if !facts.writable {
        refuse("it was opened read-only")
    } else if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        refuse("its owner sealed it against writing")
    } else {
        Ok(())
    }
}
