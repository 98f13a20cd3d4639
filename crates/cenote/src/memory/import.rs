//! Memory that comes as a file descriptor: looked at, then mapped as what it is.

use std::os::fd::OwnedFd;

use crate::error::{Error, Result};
use crate::memory::storage::Storage;
use crate::memory::{dma, shm};
use crate::sys::mapping::Access;
use crate::sys::memfd;

/// Who may write imported memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Import {
    /// We only read, and the memory cannot be taken from under us.
    ReadOnly,
    /// The caller promises everything that the seals would.
    Trusted,
}

impl Import {
    pub(crate) fn access(self) -> Access {
        match self {
            Import::ReadOnly => Access::Read,
            Import::Trusted => Access::Write,
        }
    }
}

/// Maps shared memory or a DMA-BUF of at least `needed` bytes.
pub(crate) fn import(fd: OwnedFd, needed: usize, import: Import) -> Result<Storage> {
    let facts = memfd::examine(&fd).map_err(|source| Error::os("fstat", source))?;
    match facts.dma_buf {
        true => dma::import(fd, &facts, needed, import),
        false => shm::import(fd, &facts, needed, import),
    }
}
