//! Memory that arrives as a file descriptor: examined, then mapped as shared memory or as a DMA-BUF.

use std::os::fd::OwnedFd;

use crate::error::{Error, Result};
use crate::memory::choose::request::Import;
use crate::memory::dma::dma;
use crate::memory::shm;
use crate::memory::storage::Storage;
use crate::sys::memfd;

/// Maps shared memory or a DMA-BUF. Fails if it has fewer than `needed` bytes, or does not meet `import`.
pub(crate) fn import(fd: OwnedFd, needed: usize, import: Import) -> Result<Storage> {
    let facts = memfd::examine(&fd).map_err(|source| Error::os("fstat", source))?;
    match facts.dma_buf {
        true => dma::import(fd, &facts, needed, import),
        false => shm::import(fd, &facts, needed, import),
    }
}
