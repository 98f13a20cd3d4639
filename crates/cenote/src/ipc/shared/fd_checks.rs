//! Checks of the files that an owner sends, before they are mapped: kind, size and seals.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::SealFlags;

use crate::error::{Error, Result};
use crate::ipc::shared::words::Words;
use crate::memory::dma::dma;
use crate::sys::mapping::{Access, Map};
use crate::sys::memfd;
use crate::sys::memfd::Facts;

/// No segment is larger than this.
const MAX_SEGMENT: u64 = 1 << 46;

/// Maps a header of this many words for reading.
pub(crate) fn open_header(fd: &OwnedFd, words: usize) -> Result<Words> {
    check_sealed(&examine(fd)?, word_bytes(words))?;
    Words::read_only(fd, words).map_err(|source| Error::os("mapping shared memory", source))
}

/// Maps the row of this process, of this many words, for writing.
pub(crate) fn open_row(fd: OwnedFd, words: usize) -> Result<Words> {
    check_file(&examine(&fd)?, word_bytes(words))?;
    Words::writable(&Arc::new(fd), words)
        .map_err(|source| Error::os("mapping shared memory", source))
}

/// Maps a segment for reading. Its length must be that of the file: the owner's number is not trusted.
pub(crate) fn open_segment(fd: &OwnedFd, len: u64) -> Result<Map> {
    let bad = || Error::BadMessage { what: "a segment of impossible size" };
    if len == 0 || len > MAX_SEGMENT {
        return Err(bad());
    }
    let facts = examine(fd)?;
    if facts.dma_buf {
        // Kept open, because each access by the CPU has to be reported to the kernel.
        let fd = fd.try_clone().map_err(|source| Error::os("sharing memory", source))?;
        return dma::open(fd, &facts, len, Access::Read);
    }
    check_sealed(&facts, len)?;
    let len = usize::try_from(len).map_err(|_| bad())?;
    Map::shared(fd.as_fd(), len, 1, Access::Read)
        .map_err(|source| Error::os("mapping shared memory", source))
}

fn examine(fd: &OwnedFd) -> Result<Facts> {
    memfd::examine(fd).map_err(|source| Error::os("fstat", source))
}

/// Checks that only the owner can write a file. Otherwise another process could change what is read here.
fn check_sealed(facts: &Facts, needed: u64) -> Result<()> {
    let seals = check_file(facts, needed)?;
    if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return Ok(());
    }
    Err(Error::BadMessage { what: "memory of the owner's that is not sealed against writing" })
}

/// Checks that no access to the mapped file can fail. Returns the seals of the file.
fn check_file(facts: &Facts, needed: u64) -> Result<SealFlags> {
    let seals = facts.seals.ok_or(Error::WrongFdKind { found: facts.kind })?;
    // Huge pages are mapped in other units, and can run out when they are first touched.
    if facts.huge_pages {
        return Err(Error::WrongFdKind { found: "memory of huge pages" });
    }
    // Touching a page that is not reserved yet needs memory, and the system may have none.
    if facts.size < needed || facts.reserved < needed {
        let size = facts.size.min(facts.reserved);
        let needed = usize::try_from(needed).unwrap_or(usize::MAX);
        return Err(Error::FdTooSmall { needed, size });
    }
    if !seals.contains(SealFlags::SHRINK) {
        return Err(Error::Unsealed);
    }
    Ok(seals)
}

fn word_bytes(words: usize) -> u64 {
    (words * size_of::<u64>()) as u64
}
