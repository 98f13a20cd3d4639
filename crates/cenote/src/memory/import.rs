//! Memory that comes as a file descriptor: looked at, then mapped as what it is.

use std::os::fd::OwnedFd;

use crate::error::{Error, Result};
use crate::memory::request::Import;
use crate::memory::storage::Storage;
use crate::memory::{dma, shm};
use crate::sys::memfd;

/// Maps shared memory or a DMA-BUF of at least `needed` bytes.
pub(crate) fn import(fd: OwnedFd, needed: usize, import: Import) -> Result<Storage> {
    let facts = memfd::examine(&fd).map_err(|source| Error::os("fstat", source))?;
    match facts.dma_buf {
        true => dma::import(fd, &facts, needed, import),
        false => shm::import(fd, &facts, needed, import),
    }
}
