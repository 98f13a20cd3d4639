//! DMA-BUFs: giving them to devices.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Tensor {
    /// The DMA-BUF that the tensor lives in, for a device or a library that imports it. An error for
    /// other memory.
    ///
    /// From then on this process does not write it: whoever has it can, and nobody keeps him from it
    /// ([`protection`](Tensor::protection)). [`dmabuf_mut`](Tensor::dmabuf_mut) is for those who know
    /// better. Where in it the first element lies tells [`dmabuf_offset`](Tensor::dmabuf_offset).
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

    /// Like [`dmabuf`](Tensor::dmabuf), as a descriptor of its own.
    pub fn dmabuf_clone(&self) -> Result<OwnedFd> {
        let fd = self.dmabuf()?.try_clone_to_owned();
        fd.map_err(|source| Error::os("duplicating a file descriptor", source))
    }

    /// The DMA-BUF, of a tensor that can be written all the same: for a device that reads or fills
    /// the buffer again and again, between one look at it and the next. An error where
    /// [`map_mut`](Tensor::map_mut) would refuse.
    ///
    /// # Safety
    /// While any guard of [`map`](Tensor::map) or [`map_mut`](Tensor::map_mut) lives, nobody writes
    /// the memory through this descriptor, or reads it while it can be written here.
    #[allow(unsafe_code, reason = "the promises cannot be checked")]
    pub unsafe fn dmabuf_mut(&mut self) -> Result<BorrowedFd<'_>> {
        self.check_one_buffer("dmabuf_mut")?;
        self.buffer.storage_mut().map_err(|why| Error::NotWritable { why })?;
        Ok(self.buffer.dmabuf("DMA-BUF")?.as_fd())
    }

    /// Where in its DMA-BUF the first element lies, in bytes.
    pub fn dmabuf_offset(&self) -> Result<usize> {
        self.buffer.dmabuf("DMA-BUF")?;
        let start = self.buffer.slot_ref().map_or(0, |slot_ref| slot_ref.slot.offset);
        Ok(start + self.layout.offset())
    }

    fn check_one_buffer(&self, op: &'static str) -> Result<()> {
        if self.has_far_planes() { Err(Error::FarPlanes { op }) } else { Ok(()) }
    }
}
