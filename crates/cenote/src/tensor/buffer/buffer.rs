//! The buffer behind tensors: storage, its identity, and whether it has left this process.

use std::sync::{Arc, OnceLock, Weak};

use crate::error::{Error, NotWritable, Result};
#[cfg(target_os = "linux")]
use crate::memory::cpu_access::CpuAccess;
#[cfg(target_os = "linux")]
use crate::memory::cpu_access::Direction;
use crate::memory::selection::Selection;
use crate::memory::storage::{Protection, Storage};
#[cfg(target_os = "linux")]
use crate::sync::{AtomicBool, fence};
use crate::sync::{AtomicU64, Ordering, StaticU64};
#[cfg(target_os = "linux")]
use crate::sys::dmabuf::DmaBuf;
#[cfg(all(target_os = "linux", feature = "gl"))]
use crate::sys::drop_callbacks::DropCallbacks;
#[cfg(target_os = "linux")]
use crate::sys::fork::Creator;
#[cfg(target_os = "linux")]
use crate::tensor::buffer::slot_ref::SlotRef;
#[cfg(target_os = "linux")]
use crate::tensor::buffer::write_state::Lent;
use crate::tensor::buffer::write_state::Sharing;

/// The slot of a pool that a buffer occupies.
#[cfg(target_os = "linux")]
pub(crate) type BufferSlot = SlotRef<Buffer>;

/// What all clones and views of a tensor share.
#[derive(Debug)]
pub struct Buffer {
    storage: Storage,
    identity: BufferIdentity,
    selection: Selection,
    /// Whether another process may have the bytes, and who may write them. Once published, always
    /// so while handles exist: there is no knowing when the last of the others lets go.
    sharing: Sharing,
    /// The slot of a pool that the bytes are.
    #[cfg(target_os = "linux")]
    slot_ref: Option<BufferSlot>,
    /// The pool took back the slot and has the buffer itself.
    #[cfg(target_os = "linux")]
    recycled: AtomicBool,
    /// The process that made it. A forked child has the bytes of shared memory as private
    /// copies, but the file behind them is still its parent's to write.
    #[cfg(target_os = "linux")]
    creator: Creator,
}

impl Buffer {
    /// A buffer of its own.
    pub(crate) fn new(storage: Storage, selection: Selection) -> Buffer {
        Buffer {
            storage,
            identity: BufferIdentity::new(),
            selection,
            sharing: Sharing::default(),
            #[cfg(target_os = "linux")]
            slot_ref: None,
            #[cfg(target_os = "linux")]
            recycled: AtomicBool::new(false),
            #[cfg(target_os = "linux")]
            creator: Creator::here(),
        }
    }

    /// A buffer that goes back to a pool when the last handle is gone.
    #[cfg(target_os = "linux")]
    pub(crate) fn pooled(storage: Storage, selection: Selection, slot_ref: BufferSlot) -> Buffer {
        let mut buffer = Buffer::new(storage, selection);
        buffer.slot_ref = Some(slot_ref);
        buffer
    }

    #[inline]
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// An error if it has fewer bytes: all that what lies side by side from its start needs of it.
    #[inline]
    pub(crate) fn check_room(&self, needed: usize) -> Result<()> {
        let len = self.storage.len();
        if needed <= len {
            return Ok(());
        }
        Err(Error::OutOfBuffer { start: 0, end: needed as i128, len })
    }

    pub(crate) fn identity(&self) -> &BufferIdentity {
        &self.identity
    }

    pub(crate) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Whether nobody can change the bytes while they are read. A forked child has no lease, so what
    /// it inherited may be reused.
    #[inline]
    pub(crate) fn is_stable(&self) -> bool {
        #[cfg(target_os = "linux")]
        if self.creator.is_inherited() && (self.slot_ref.is_some() || self.storage.outlives_fork())
        {
            return false;
        }
        let may_be_had = || self.is_published() || self.is_given_away();
        self.storage.stable && !(self.protection() == Protection::Convention && may_be_had())
    }

    /// Whether the bytes of a buffer that nobody writes here stay as they are: those of a slot by its lease, which
    /// a forked child has not.
    pub(crate) fn stays(&self) -> bool {
        #[cfg(target_os = "linux")]
        if self.slot_ref.is_some() {
            return !self.creator.is_inherited();
        }
        self.is_stable()
    }

    /// Whether the bytes are those of the process that this one was forked from, and no copy.
    #[cfg(target_os = "linux")]
    #[inline]
    fn is_parents(&self) -> bool {
        self.storage.dma.is_some() && self.storage.outlives_fork() && self.creator.is_inherited()
    }

    #[cfg(not(target_os = "linux"))]
    #[inline]
    fn is_parents(&self) -> bool {
        false
    }

    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn slot_ref(&self) -> Option<&BufferSlot> {
        self.slot_ref.as_ref()
    }

    #[inline]
    pub(crate) fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// Makes sure that the bytes stay as they are from here on, as far as this process is
    /// concerned. An error while somebody has borrowed them to write.
    ///
    /// Nobody else can write while `self` is borrowed, for that takes the sole handle, and becoming it
    /// (`Handle::storage_mut` acquires what dropping the others released) comes after.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn set_published(&self) -> Result<()> {
        if self.storage.dma.is_some() && !self.is_published() {
            self.show_what_devices_wrote()?;
        }
        self.sharing.publish().map_err(|Lent| Error::Lent)
    }

    /// Whoever gets the file beneath a DMA-BUF cannot put caches in order: he is to find them so. (A
    /// DMA-BUF from a heap has no such file, and whoever gets it does that himself.)
    #[cfg(target_os = "linux")]
    #[cold]
    fn show_what_devices_wrote(&self) -> Result<()> {
        match self.storage.protection {
            Protection::Kernel => CpuAccess::begin(&self.storage.dma, Direction::Read).map(drop),
            Protection::Convention => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn is_published(&self) -> bool {
        self.sharing.is_published()
    }

    /// Whether somebody, or some device, may still be using the bytes when no handle is left.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn must_retire(&self) -> bool {
        self.is_published() || self.storage.dma.is_some()
    }

    /// Lends the file descriptor for giving away, after making sure that the bytes stay as they
    /// are: from here on nobody writes them, neither we nor whoever gets the descriptor.
    #[cfg(target_os = "linux")]
    pub(crate) fn publish(&self, wanted: &'static str) -> Result<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;

        use crate::sys::memfd;

        if self.slot_ref.is_some() {
            return Err(Error::PooledFd { wanted });
        }
        let Some(fd) = &self.storage.fd else {
            if let Some(dma) = &self.storage.dma {
                self.check_not_inherited()?;
                self.set_published()?;
                return Ok(dma.as_fd());
            }
            let memory = self.storage.memory.name();
            let instead = match self.selection.is_forced() {
                true => "shm memory, without CENOTE_FORCE_MEM",
                false => "shm memory",
            };
            return Err(Error::NoFd { memory, wanted, instead });
        };
        if self.sharing.is_lent() {
            return Err(Error::Lent);
        }
        // The seal first: where it is refused, nothing was given away and writing may go on.
        if self.storage.region.is_writable() {
            self.check_not_inherited()?;
            memfd::forbid_writing(fd).map_err(|source| Error::os("sealing memory", source))?;
        }
        self.set_published()?;
        Ok(fd.as_fd())
    }

    /// A child must not give away what its parent, which would not know, goes on writing.
    #[cfg(target_os = "linux")]
    fn check_not_inherited(&self) -> Result<()> {
        let written = self.storage.region.is_writable() && !self.is_published();
        if self.creator.is_inherited() && written {
            return Err(Error::NotWritable { why: NotWritable::Forked });
        }
        Ok(())
    }

    /// Lends the DMA-BUF for giving away. Whoever gets it can write it, so from here on we do not.
    #[cfg(target_os = "linux")]
    pub(crate) fn publish_dmabuf(&self, wanted: &'static str) -> Result<&DmaBuf> {
        let dma = self.dmabuf(wanted)?;
        self.check_not_inherited()?;
        self.set_published()?;
        dma.set_exported();
        Ok(dma)
    }

    /// The DMA-BUF, for this process and its devices alone.
    #[cfg(target_os = "linux")]
    pub(crate) fn dmabuf(&self, wanted: &'static str) -> Result<&DmaBuf> {
        let memory = self.storage.memory.name();
        let none = Error::NoFd { memory, wanted, instead: "dma memory" };
        self.storage.dma.as_ref().ok_or(none)
    }

    /// Whether the DMA-BUF itself was given away, of this buffer or another over the same memory:
    /// everybody who has it can write it.
    #[inline]
    fn is_given_away(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.storage.dma.as_ref().is_some_and(DmaBuf::is_exported);
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// What keeps those from writing the bytes who have them.
    #[inline]
    pub(crate) fn protection(&self) -> Protection {
        if self.is_given_away() { Protection::Convention } else { self.storage.protection }
    }

    /// Makes a buffer that came back to its pool like new. Only the pool has it, so whoever gets
    /// it next gets these stores with it.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn renew(&self) {
        self.identity.id.store(0, Ordering::Relaxed);
        self.sharing.renew();
        self.recycled.store(false, Ordering::Relaxed);
    }
}

impl Buffer {
    /// Why nobody may write the bytes, however many handles there are.
    #[inline]
    pub(crate) fn not_writable(&self) -> Option<NotWritable> {
        if !self.storage.region.is_writable() {
            Some(self.storage.foreign())
        } else if self.sharing.is_published() {
            Some(NotWritable::Published)
        } else {
            self.is_parents().then_some(NotWritable::Forked)
        }
    }

    #[inline]
    pub(crate) fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }

    /// Makes a buffer, which nobody else has, one that its pool has.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn into_recycled(mut buffer: Arc<Buffer>) -> Arc<Buffer> {
        // Pairs with the Release by which the other handles were dropped.
        fence(Ordering::Acquire);
        buffer.recycled.store(true, Ordering::Relaxed);
        if buffer.identity.is_watched()
            && let Some(buffer) = Arc::get_mut(&mut buffer)
        {
            buffer.identity.end();
        }
        buffer
    }
}

#[cfg(target_os = "linux")]
impl Drop for Buffer {
    fn drop(&mut self) {
        // Two handles that were dropped at the same moment both left it to the other.
        if let Some(slot_ref) =
            self.slot_ref.take().filter(|_| !self.recycled.load(Ordering::Relaxed))
        {
            slot_ref.release(self.must_retire());
        }
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
    /// 0 until first asked for, and while no tensor has the buffer.
    id: AtomicU64,
    /// Made when first asked for: most buffers are never watched.
    token: OnceLock<Arc<()>>,
    /// What is to be done when the last tensor of the buffer is gone.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    drop_callbacks: OnceLock<DropCallbacks>,
}

impl BufferIdentity {
    fn new() -> Self {
        BufferIdentity {
            id: AtomicU64::new(0),
            token: OnceLock::new(),
            #[cfg(all(target_os = "linux", feature = "gl"))]
            drop_callbacks: OnceLock::new(),
        }
    }

    /// Has `end` called when the last tensor of the buffer is gone: see [`DropCallbacks::add`].
    #[cfg(all(target_os = "linux", feature = "gl"))]
    pub(crate) fn on_drop(&self, key: u64, end: impl FnOnce() + Send + 'static) -> bool {
        self.drop_callbacks.get_or_init(DropCallbacks::default).add(key, end)
    }

    /// Whether anybody watches it.
    #[cfg(target_os = "linux")]
    #[inline]
    fn is_watched(&self) -> bool {
        #[cfg(feature = "gl")]
        if self.drop_callbacks.get().is_some() {
            return true;
        }
        self.token.get().is_some()
    }

    /// The last tensor of the buffer is gone, but not the buffer.
    #[cfg(target_os = "linux")]
    fn end(&mut self) {
        self.token.take();
        #[cfg(feature = "gl")]
        self.drop_callbacks.take();
    }

    /// A number that no other buffer of this process has, or ever had. Numbers go up in the
    /// order in which they are first asked for.
    pub fn id(&self) -> u64 {
        match self.id.load(Ordering::Relaxed) {
            0 => self.assign_id(),
            id => id,
        }
    }

    /// Relaxed throughout: only uniqueness matters.
    fn assign_id(&self) -> u64 {
        static NEXT: StaticU64 = StaticU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let won = self.id.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed);
        won.map_or_else(|other| other, |_| id)
    }

    /// A reference that goes dead with the last tensor of the buffer.
    pub fn weak(&self) -> Weak<()> {
        Arc::downgrade(self.token.get_or_init(Arc::default))
    }
}
