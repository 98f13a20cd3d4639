//! Publishing a buffer: making sure that its bytes do not change, and handing out its descriptors.

use std::os::fd::{AsFd, BorrowedFd};

use crate::error::{Error, NotWritable, Result};
use crate::memory::cpu_access::{CpuAccess, Direction};
use crate::memory::storage::Protection;
use crate::sys::dmabuf::DmaBuf;
use crate::sys::memfd;
use crate::tensor::buffer::buffer::Buffer;
use crate::tensor::buffer::write_state::OnLoan;

impl Buffer {
    /// Marks the buffer as published: this process does not write the bytes any more. Fails while a loan to write
    /// is alive.
    ///
    /// No other thread writes while `self` is borrowed, because writing needs the sole handle. A handle becomes
    /// the sole one after this (`Handle::storage_mut` acquires what dropping the other handles released).
    #[inline]
    pub(crate) fn set_published(&self) -> Result<()> {
        if self.storage().dma.is_some() && !self.is_published() {
            self.sync_device_writes()?;
        }
        self.write_state().publish().map_err(|OnLoan| Error::Lent)
    }

    /// Makes what devices have written visible to the CPU. A receiver gets the memfd beneath a udmabuf, and cannot
    /// synchronise caches by that. (A DMA-BUF from a dma-heap has no such file: its receiver synchronises.)
    #[cold]
    fn sync_device_writes(&self) -> Result<()> {
        match self.storage().protection {
            Protection::Kernel => CpuAccess::begin(&self.storage().dma, Direction::Read).map(drop),
            Protection::Convention => Ok(()),
        }
    }

    /// Publishes the buffer, and returns its file descriptor for other processes. From then on neither this process
    /// nor a receiver can write the bytes. Fails for memory without a descriptor, and while a loan to write is
    /// alive. `wanted` names the descriptor in errors.
    pub(crate) fn publish(&self, wanted: &'static str) -> Result<BorrowedFd<'_>> {
        if self.slot_ref().is_some() {
            return Err(Error::PooledFd { wanted });
        }
        let Some(fd) = &self.storage().fd else {
            if let Some(dma) = &self.storage().dma {
                self.check_not_inherited()?;
                self.set_published()?;
                return Ok(dma.as_fd());
            }
            let memory = self.storage().memory.name();
            let instead = match self.selection().is_forced() {
                true => "shm memory, without CENOTE_FORCE_MEM",
                false => "shm memory",
            };
            return Err(Error::NoFd { memory, wanted, instead });
        };
        if self.write_state().has_loans() {
            return Err(Error::Lent);
        }
        // Seal first: if the kernel refuses, nothing was published and the buffer stays writable.
        if self.storage().region.is_writable() {
            self.check_not_inherited()?;
            memfd::forbid_writing(fd).map_err(|source| Error::os("sealing memory", source))?;
        }
        self.set_published()?;
        Ok(fd.as_fd())
    }

    /// Fails in a forked child for memory that its parent may still write: the parent would not know of it.
    fn check_not_inherited(&self) -> Result<()> {
        let written = self.storage().region.is_writable() && !self.is_published();
        if self.is_inherited() && written {
            return Err(Error::NotWritable { why: NotWritable::Forked });
        }
        Ok(())
    }

    /// Publishes the buffer, and returns its DMA-BUF for devices and other processes. They can write it, so this
    /// process does not any more.
    pub(crate) fn publish_dmabuf(&self, wanted: &'static str) -> Result<&DmaBuf> {
        let dma = self.dmabuf(wanted)?;
        self.check_not_inherited()?;
        self.set_published()?;
        dma.set_exported();
        Ok(dma)
    }

    /// Returns the DMA-BUF, for use by this process and its devices only. Fails for other memory.
    pub(crate) fn dmabuf(&self, wanted: &'static str) -> Result<&DmaBuf> {
        let memory = self.storage().memory.name();
        let none = Error::NoFd { memory, wanted, instead: "dma memory" };
        self.storage().dma.as_ref().ok_or(none)
    }
}
