//! The buffer behind tensors: storage, its identity, and whether it has left this process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::error::NotWritable;
#[cfg(target_os = "linux")]
use crate::error::Result;
use crate::memory::TensorMemory;
use crate::memory::select::Selection;
use crate::memory::storage::Storage;

/// What all clones and views of a tensor share.
#[derive(Debug)]
pub(crate) struct Buffer {
    storage: Storage,
    identity: BufferIdentity,
    selection: Selection,
    /// Set once, when another process may have the bytes. Never cleared: there is no knowing
    /// when the last of them lets go.
    published: AtomicBool,
    /// The process that made it. A forked child inherits the handles, and of shared memory the very
    /// bytes, so there the sole handle is not the sole holder.
    process: u32,
}

impl Buffer {
    pub(crate) fn new(storage: Storage, selection: Selection) -> Arc<Buffer> {
        let identity = BufferIdentity::next();
        let (published, process) = (AtomicBool::new(false), std::process::id());
        Arc::new(Buffer { storage, identity, selection, published, process })
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    pub(crate) fn identity(&self) -> &BufferIdentity {
        &self.identity
    }

    pub(crate) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The bytes for writing, if nobody else could be looking at them.
    pub(crate) fn bytes_mut(this: &mut Arc<Buffer>) -> Result<&mut [u8], NotWritable> {
        let reason = Buffer::not_writable(this).unwrap_or(NotWritable::Shared);
        let buffer = Arc::get_mut(this).ok_or(reason)?;
        if *buffer.published.get_mut() {
            return Err(NotWritable::Published);
        }
        if buffer.is_inherited() {
            return Err(NotWritable::Forked);
        }
        buffer.storage.region.bytes_mut().ok_or(reason)
    }

    /// Why [`Buffer::bytes_mut`] would refuse now, as far as can be told without `&mut`.
    pub(crate) fn not_writable(this: &Arc<Buffer>) -> Option<NotWritable> {
        if !this.storage.region.is_writable() {
            Some(this.storage.foreign())
        } else if this.published.load(Ordering::Relaxed) {
            Some(NotWritable::Published)
        } else if this.is_inherited() {
            Some(NotWritable::Forked)
        } else {
            (Arc::strong_count(this) > 1).then_some(NotWritable::Shared)
        }
    }

    /// Whether the bytes are those of the process that this one was forked from. Heap memory is copied
    /// on write by the fork.
    fn is_inherited(&self) -> bool {
        self.storage.memory != TensorMemory::Mem && self.process != std::process::id()
    }

    /// Lends the file descriptor for giving away, after making sure that the bytes stay as they
    /// are: from here on nobody writes them, neither we nor whoever gets the descriptor.
    #[cfg(target_os = "linux")]
    pub(crate) fn publish(&self, wanted: &'static str) -> Result<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;

        use crate::error::Error;
        use crate::os::memfd;

        let Some(fd) = &self.storage.fd else {
            let memory = self.storage.memory.name();
            let instead = match self.selection.is_forced() {
                true => "shm memory, without CENOTE_FORCE_MEM",
                false => "shm memory",
            };
            return Err(Error::NoFd { memory, wanted, instead });
        };
        // The seal first: where it is refused, nothing was given away and the owner may go on writing.
        if self.storage.region.is_writable() {
            if self.is_inherited() && !self.published.load(Ordering::Relaxed) {
                // The parent would not know, and go on writing.
                return Err(Error::NotWritable { why: NotWritable::Forked });
            }
            memfd::forbid_writing(fd).map_err(|source| Error::os("sealing memory", source))?;
        }
        // Relaxed: nobody can write while `self` is borrowed, for writing takes the sole handle, and
        // becoming that (`Arc::get_mut` acquires what dropping the others released) comes after this.
        self.published.store(true, Ordering::Relaxed);
        Ok(fd.as_fd())
    }
}

/// Tells buffers apart: a key for caches of whatever was made from a buffer.
///
/// Clones and views of a tensor share it; every allocation and every import has a new one.
///
/// ```
/// use cenote::{DType, Tensor};
///
/// let tensor = Tensor::new(&[4], DType::F32)?;
/// let key = tensor.buffer_identity().id();
/// let alive = tensor.buffer_identity().weak();
/// assert_eq!(tensor.clone().buffer_identity().id(), key);
///
/// drop(tensor);
/// assert!(alive.upgrade().is_none());
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug)]
pub struct BufferIdentity {
    id: u64,
    /// Made when first asked for: most buffers are never watched.
    token: OnceLock<Arc<()>>,
}

impl BufferIdentity {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only uniqueness matters.
        BufferIdentity { id: NEXT.fetch_add(1, Ordering::Relaxed), token: OnceLock::new() }
    }

    /// A number that no other buffer of this process has, or ever had.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// A reference that goes dead with the last tensor of the buffer.
    pub fn weak(&self) -> Weak<()> {
        Arc::downgrade(self.token.get_or_init(Arc::default))
    }
}
