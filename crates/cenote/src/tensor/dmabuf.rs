//! The DMA-BUF of a tensor, for devices.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{Error, Result};
use crate::tensor::tensor::Tensor;

impl Tensor {
    /// Returns the DMA-BUF that the tensor is in, for a device or a library that imports it. Fails for other
    /// memory.
    ///
    /// From then on this process cannot write the tensor, because the importer can, and the kernel does not
    /// prevent that ([`protection`](Tensor::protection)). [`dmabuf_mut`](Tensor::dmabuf_mut) keeps it writable.
    /// [`dmabuf_offset`](Tensor::dmabuf_offset) returns the offset of the first element in it.
    ///
    /// ```
    /// use cenote::{DType, Tensor, TensorMemory};
    ///
    /// if TensorMemory::Dma.is_available() {
    ///     let tensor = Tensor::options().memory(TensorMemory::Dma).create(&[480, 640], DType::U8)?;
    ///     println!("{:?}, {} bytes in", tensor.dmabuf()?, tensor.dmabuf_offset()?);
    /// }
    /// let heap = Tensor::from_vec(vec![0u8; 4], &[4])?;
    /// assert!(heap.dmabuf().is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn dmabuf(&self) -> Result<BorrowedFd<'_>> {
        self.check_one_buffer("dmabuf")?;
        Ok(self.buffer.publish_dmabuf("DMA-BUF")?.as_fd())
    }

    /// Like [`dmabuf`](Tensor::dmabuf), as a new descriptor.
    pub fn dmabuf_clone(&self) -> Result<OwnedFd> {
        let fd = self.dmabuf()?.try_clone_to_owned();
        fd.map_err(|source| Error::os("duplicating a file descriptor", source))
    }

    /// Returns the DMA-BUF, and leaves the tensor writable: for a device that reads or fills the buffer repeatedly,
    /// in turn with this process. Fails where [`map_mut`](Tensor::map_mut) would refuse.
    ///
    /// # Safety
    /// While a guard of [`map`](Tensor::map) lives, the memory is not written through this descriptor. While a
    /// guard of [`map_mut`](Tensor::map_mut) lives, it is neither written nor read through it.
    #[allow(unsafe_code, reason = "the promises cannot be checked")]
    pub unsafe fn dmabuf_mut(&mut self) -> Result<BorrowedFd<'_>> {
        self.check_one_buffer("dmabuf_mut")?;
        self.buffer.storage_mut().map_err(|why| Error::NotWritable { why })?;
        Ok(self.buffer.dmabuf("DMA-BUF")?.as_fd())
    }

    /// Returns the offset of the first element in its DMA-BUF, in bytes. Fails for other memory.
    pub fn dmabuf_offset(&self) -> Result<usize> {
        self.buffer.dmabuf("DMA-BUF")?;
        let start = self.buffer.slot_ref().map_or(0, |slot_ref| slot_ref.slot.offset);
        Ok(start + self.layout.offset())
    }

    /// Fails for an image whose planes are in several buffers.
    fn check_one_buffer(&self, op: &'static str) -> Result<()> {
        if self.has_far_planes() { Err(Error::FarPlanes { op }) } else { Ok(()) }
    }
}
