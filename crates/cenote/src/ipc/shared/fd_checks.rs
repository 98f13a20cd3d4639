//! The files that an owner sends, checked before they are mapped: kind, size and seals.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::SealFlags;

use crate::error::{Error, Result};
use crate::ipc::shared::words::Words;
use crate::memory::dma;
use crate::sys::mapping::{Access, Map};
use crate::sys::memfd;
use crate::sys::memfd::Facts;

/// A segment larger than this is a lie.
const MAX_SEGMENT: u64 = 1 << 46;

/// Maps a header of so many words, to read.
pub(crate) fn open_header(fd: &OwnedFd, words: usize) -> Result<Words> {
    check_sealed(&examine(fd)?, word_bytes(words))?;
    Words::read_only(fd, words).map_err(|source| Error::os("mapping shared memory", source))
}

/// Maps this process's own row of so many words, to write.
pub(crate) fn open_row(fd: OwnedFd, words: usize) -> Result<Words> {
    check_file(&examine(&fd)?, word_bytes(words))?;
    Words::writable(&Arc::new(fd), words)
        .map_err(|source| Error::os("mapping shared memory", source))
}

/// Maps a segment. Only what is there is ever touched: its size is the file's, not the owner's word.
pub(crate) fn open_segment(fd: &OwnedFd, len: u64) -> Result<Map> {
    let bad = || Error::BadMessage { what: "a segment of impossible size" };
    if len == 0 || len > MAX_SEGMENT {
        return Err(bad());
    }
    let facts = examine(fd)?;
    if facts.dma_buf {
        // Kept open: whoever looks at it must tell the kernel, each time.
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

/// Checks a file that only its owner may write. Else whoever else has it could change what is read.
fn check_sealed(facts: &Facts, needed: u64) -> Result<()> {
    let seals = check_file(facts, needed)?;
    if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return Ok(());
    }
    Err(Error::BadMessage { what: "memory of the owner's that is not sealed against writing" })
}

/// Checks that touching a file cannot fail, and gives its seals.
fn check_file(facts: &Facts, needed: u64) -> Result<SealFlags> {
    let seals = facts.seals.ok_or(Error::WrongFdKind { found: facts.kind })?;
    // They are mapped and unmapped in other units, and can run out when touched.
    if facts.huge_pages {
        return Err(Error::WrongFdKind { found: "memory of huge pages" });
    }
    // Touching what is not there yet takes memory, which might not be had.
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
