//! File descriptors: giving a tensor's memory away, and taking memory in.
//!
//! Memory that leaves this process is sealed against writing first, by the kernel and for
//! everybody, and memory that comes in is only read. So safe code never sees bytes change. Memory
//! that was not made by cenote may lack that seal: what is required then is that it cannot shrink,
//! because touching pages that are gone is SIGBUS.

use std::os::fd::OwnedFd;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::memory::TensorMemory;
use crate::memory::select::{Origin, Selection};
use crate::memory::shm::{self, Import};
use crate::tensor::Tensor;
use crate::tensor::buffer::Buffer;

impl Tensor {
    /// A new file descriptor for the memory of the whole buffer, to be sent to another process.
    ///
    /// From then on nobody can write this memory, here or there. The descriptor says nothing
    /// about shape or dtype; [`send`](Tensor::send) sends those too.
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

    /// A read-only tensor over shared memory from elsewhere, from its first byte on.
    ///
    /// The memory must be large enough and sealed against shrinking.
    pub fn from_fd(fd: OwnedFd, shape: &[usize], dtype: DType) -> Result<Tensor> {
        Tensor::from_fd_layout(fd, Layout::contiguous(shape, dtype.size())?, dtype)
    }

    /// A read-only tensor over shared memory from elsewhere, with offset and strides.
    pub fn from_fd_layout(fd: OwnedFd, layout: Layout, dtype: DType) -> Result<Tensor> {
        Tensor::import(fd, layout, dtype, Import::ReadOnly)
    }

    /// A writable tensor over shared memory from elsewhere.
    ///
    /// # Safety
    /// While the tensor or any clone or view of it lives, nobody else writes the memory, and
    /// nobody shrinks the file behind it.
    #[allow(unsafe_code, reason = "the promises cannot be checked")]
    pub unsafe fn from_fd_mut(fd: OwnedFd, layout: Layout, dtype: DType) -> Result<Tensor> {
        Tensor::import(fd, layout, dtype, Import::Trusted)
    }

    pub(super) fn import(
        fd: OwnedFd,
        layout: Layout,
        dtype: DType,
        import: Import,
    ) -> Result<Tensor> {
        let storage = shm::import(fd, layout.byte_range().end, import)?;
        let selection = Selection::given(TensorMemory::Shm, Origin::Imported);
        Tensor::over(Buffer::new(storage, selection), layout, dtype)
    }
}
