//! File descriptors: exporting a tensor's memory, and importing memory.
//!
//! The kernel seals memory against writing before it leaves this process, for all processes, and imported
//! memory is only read. So safe code never sees bytes change. Memory that cenote did not allocate may lack
//! that seal. It must at least be sealed against shrinking, because access to a page that was removed is
//! SIGBUS. DMA-BUFs never shrink and cannot be sealed: by convention their holders do not write them.

use std::os::fd::OwnedFd;

use crate::error::{Error, Result};
use crate::memory::choose::request::Import;
use crate::memory::choose::selection::{Origin, Selection};
use crate::memory::import;
use crate::tensor::buffer::handle::Handle;
use crate::tensor::tensor::Tensor;
use crate::types::dtype::DType;
use crate::types::layout::Layout;

impl Tensor {
    /// Returns a new file descriptor for the memory of the whole buffer, to send to another process. Fails for
    /// heap memory, which has none.
    ///
    /// From then on no process can write this memory. (Imported memory keeps the protection that it came with:
    /// if it was not sealed, other processes can still write it. The same is true of a DMA-BUF from a dma-heap:
    /// see [`protection`](Tensor::protection).)
    ///
    /// The descriptor does not carry the shape, the dtype or the range of a view; [`send`](Tensor::send) sends
    /// those too.
    ///
    /// ```
    /// use cenote::{DType, Tensor, TensorMemory};
    ///
    /// let mut tensor = Tensor::options().memory(TensorMemory::Shm).create(&[16], DType::I32)?;
    /// tensor.map_mut()?.as_mut_slice::<i32>()?.fill(3);
    ///
    /// let fd = tensor.clone_fd()?;
    /// let other = Tensor::from_fd(fd, &[16], DType::I32)?;
    /// assert_eq!(other.to_vec::<i32>()?, [3; 16]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn clone_fd(&self) -> Result<OwnedFd> {
        let fd = self.buffer.publish("file descriptor")?;
        fd.try_clone_to_owned().map_err(|source| Error::os("duplicating a file descriptor", source))
    }

    /// Makes a read-only tensor over imported shared memory or a DMA-BUF, from its first byte on. The tensor keeps
    /// the descriptor.
    ///
    /// Fails unless it is large enough, and a DMA-BUF or a memfd that is sealed against shrinking
    /// (`F_SEAL_SHRINK`).
    ///
    /// Memory of [`clone_fd`](Tensor::clone_fd) or [`send`](Tensor::send) cannot change. Other memory may lack the
    /// seal against writing, and a DMA-BUF has none: import it only from processes that do not write it any more.
    /// [`protection`](Tensor::protection) returns which it is.
    pub fn from_fd(fd: OwnedFd, shape: &[usize], dtype: DType) -> Result<Tensor> {
        Tensor::from_fd_layout(fd, Layout::contiguous(shape, dtype.size())?, dtype)
    }

    /// Like [`from_fd`](Tensor::from_fd), with offset and strides.
    ///
    /// ```
    /// use cenote::{DType, Layout, Tensor, TensorMemory};
    ///
    /// let options = Tensor::options().memory(TensorMemory::Shm);
    /// let all = options.create_from_slice(&[1u8, 2, 3, 4, 5, 6, 7, 8], &[8])?;
    ///
    /// let columns = Layout::strided(&[2, 2], &[4, 1], 2, 1)?; // two rows of 4 bytes, the last 2 of each
    /// let part = Tensor::from_fd_layout(all.clone_fd()?, columns, DType::U8)?;
    /// assert_eq!(part.to_vec::<u8>()?, [3, 4, 7, 8]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn from_fd_layout(fd: OwnedFd, layout: Layout, dtype: DType) -> Result<Tensor> {
        Tensor::import(fd, layout, dtype, Import::ReadOnly)
    }

    /// Makes a writable tensor over imported shared memory or a DMA-BUF, which need not be sealed. Fails if it is
    /// sealed against writing, or was opened read-only.
    ///
    /// # Safety
    /// While the tensor or any clone or view of it lives, nothing else writes the memory, and the file behind it
    /// does not shrink.
    #[allow(unsafe_code, reason = "the promises cannot be checked")]
    pub unsafe fn from_fd_mut(fd: OwnedFd, layout: Layout, dtype: DType) -> Result<Tensor> {
        Tensor::import(fd, layout, dtype, Import::Trusted)
    }

    /// Maps a descriptor, and makes a tensor over it.
    pub(crate) fn import(fd: OwnedFd, layout: Layout, dtype: DType, how: Import) -> Result<Tensor> {
        let storage = import::import(fd, layout.byte_range().end, how)?;
        let selection = Selection::given(storage.memory, Origin::Imported);
        Tensor::over(Handle::new(storage, selection), layout, dtype)
    }
}
