//! File descriptors: giving a tensor's memory away, and taking memory in.
//!
//! Memory that leaves this process is sealed against writing first, by the kernel and for
//! everybody, and memory that comes in is only read. So safe code never sees bytes change. Memory
//! that was not made by cenote may lack that seal: what is required then is that it cannot shrink,
//! because touching pages that are gone is SIGBUS. DMA-BUFs never shrink, and cannot be sealed: whoever
//! has one leaves it alone by convention.

use std::os::fd::OwnedFd;

use crate::error::{Error, Result};
use crate::memory::import;
use crate::memory::request::Import;
use crate::memory::selection::{Origin, Selection};
use crate::tensor::Tensor;
use crate::tensor::buffer::handle::Handle;
use crate::types::dtype::DType;
use crate::types::layout::Layout;

impl Tensor {
    /// A new file descriptor for the memory of the whole buffer, to be sent to another process.
    /// An error for heap memory, which has none.
    ///
    /// From then on nobody can write this memory, here or there. (Memory that came from
    /// elsewhere is as it came: if its maker did not seal it, others can still write it. So they can a
    /// DMA-BUF from a heap: [`protection`](Tensor::protection).) The
    /// descriptor says nothing about shape or dtype, or which part a view shows; [`send`](Tensor::send) sends those too.
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

    /// A read-only tensor over shared memory or a DMA-BUF from elsewhere, from its first byte on.
    ///
    /// It must be large enough, and a DMA-BUF, or a memfd that is sealed against shrinking
    /// (`F_SEAL_SHRINK`); anything else is an error here and not later. The descriptor is kept while
    /// the tensor lives.
    ///
    /// Memory that [`clone_fd`](Tensor::clone_fd) or [`send`](Tensor::send) gave out cannot change.
    /// Memory from other makers may lack the seal against writing, and a DMA-BUF has none: take it in
    /// only from those who leave it alone. [`protection`](Tensor::protection) tells.
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

    /// A writable tensor over shared memory or a DMA-BUF from elsewhere. It need not be sealed; if it is
    /// sealed against writing, or was opened to be read, this is an error.
    ///
    /// # Safety
    /// While the tensor or any clone or view of it lives, nobody else writes the memory, and
    /// nobody shrinks the file behind it.
    #[allow(unsafe_code, reason = "the promises cannot be checked")]
    pub unsafe fn from_fd_mut(fd: OwnedFd, layout: Layout, dtype: DType) -> Result<Tensor> {
        Tensor::import(fd, layout, dtype, Import::Trusted)
    }

    pub(crate) fn import(fd: OwnedFd, layout: Layout, dtype: DType, how: Import) -> Result<Tensor> {
        let storage = import::import(fd, layout.byte_range().end, how)?;
        let selection = Selection::given(storage.memory, Origin::Imported);
        Tensor::over(Handle::new(storage, selection), layout, dtype)
    }
}
