//! The buffer behind tensors: its memory, its identity, and whether it may be written.

#[cfg(target_os = "linux")]
use std::sync::Arc;

use crate::error::{Error, NotWritable, Result};
use crate::memory::choose::selection::Selection;
use crate::memory::storage::{Protection, Storage};
#[cfg(target_os = "linux")]
use crate::sync::{AtomicBool, Ordering, fence};
#[cfg(target_os = "linux")]
use crate::sys::dmabuf::DmaBuf;
#[cfg(target_os = "linux")]
use crate::sys::fork::Creator;
use crate::tensor::buffer::identity::BufferIdentity;
#[cfg(target_os = "linux")]
use crate::tensor::buffer::slot_ref::SlotRef;
use crate::tensor::buffer::write_state::WriteState;

/// The slot of a pool that a buffer occupies.
#[cfg(target_os = "linux")]
pub(crate) type BufferSlot = SlotRef<Buffer>;

/// What all clones and views of a tensor share.
#[derive(Debug)]
pub struct Buffer {
    storage: Storage,
    identity: BufferIdentity,
    selection: Selection,
    /// Whether the buffer is published or on loan. Once published it stays so while handles exist, because this
    /// process cannot know when the last reader elsewhere releases it.
    write_state: WriteState,
    /// The slot of a pool that the bytes occupy.
    #[cfg(target_os = "linux")]
    slot_ref: Option<BufferSlot>,
    /// The pool has taken back the slot together with the buffer.
    #[cfg(target_os = "linux")]
    recycled: AtomicBool,
    /// The process that made it. A forked child has private copies of the bytes of shared memory, but the parent
    /// can still write the file behind them.
    #[cfg(target_os = "linux")]
    creator: Creator,
}

impl Buffer {
    /// A buffer that belongs to no pool.
    pub(crate) fn new(storage: Storage, selection: Selection) -> Buffer {
        Buffer {
            storage,
            identity: BufferIdentity::new(),
            selection,
            write_state: WriteState::default(),
            #[cfg(target_os = "linux")]
            slot_ref: None,
            #[cfg(target_os = "linux")]
            recycled: AtomicBool::new(false),
            #[cfg(target_os = "linux")]
            creator: Creator::here(),
        }
    }

    /// A buffer that the last handle returns to a pool.
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

    /// Fails if the buffer has fewer than `needed` bytes. That is the whole check for a contiguous layout at its
    /// start.
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

    /// Returns whether the bytes cannot change while they are read. A forked child has no lease, so the owner may
    /// reuse a slot that the child inherited.
    #[inline]
    pub(crate) fn is_stable(&self) -> bool {
        #[cfg(target_os = "linux")]
        if self.creator.is_inherited()
            && (self.slot_ref.is_some() || self.storage.stays_shared_after_fork())
        {
            return false;
        }
        let may_be_shared = || self.is_published() || self.is_exported();
        self.storage.stable && !(self.protection() == Protection::Convention && may_be_shared())
    }

    /// Returns whether the bytes of a buffer that this process does not write stay the same. A lease protects those
    /// of a slot; a forked child has no lease.
    pub(crate) fn stays_unchanged(&self) -> bool {
        #[cfg(target_os = "linux")]
        if self.slot_ref.is_some() {
            return !self.creator.is_inherited();
        }
        self.is_stable()
    }

    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn is_inherited(&self) -> bool {
        self.creator.is_inherited()
    }

    /// Returns whether the bytes are memory of the parent process, and not a copy of it.
    #[cfg(target_os = "linux")]
    #[inline]
    fn is_parent_memory(&self) -> bool {
        self.storage.dma.is_some()
            && self.storage.stays_shared_after_fork()
            && self.creator.is_inherited()
    }

    #[cfg(not(target_os = "linux"))]
    #[inline]
    fn is_parent_memory(&self) -> bool {
        false
    }

    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn slot_ref(&self) -> Option<&BufferSlot> {
        self.slot_ref.as_ref()
    }

    #[inline]
    pub(crate) fn write_state(&self) -> &WriteState {
        &self.write_state
    }

    #[inline]
    pub(crate) fn is_published(&self) -> bool {
        self.write_state.is_published()
    }

    /// Returns whether another process or a device may still use the bytes when no handle is left.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn must_retire(&self) -> bool {
        self.is_published() || self.storage.dma.is_some()
    }

    /// Returns whether the DMA-BUF itself was exported, by this buffer or another one over the same memory. Every
    /// receiver can write it.
    #[inline]
    fn is_exported(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.storage.dma.as_ref().is_some_and(DmaBuf::is_exported);
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// What prevents receivers from writing the bytes.
    #[inline]
    pub(crate) fn protection(&self) -> Protection {
        if self.is_exported() { Protection::Convention } else { self.storage.protection }
    }

    /// Makes a recycled buffer like new. Only the pool has it, and these stores are ordered by the way in which the
    /// pool hands it to the next thread.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn renew(&self) {
        self.identity.reset();
        self.write_state.reset();
        self.recycled.store(false, Ordering::Relaxed);
    }

    /// Returns why the bytes cannot be written, apart from other handles.
    #[inline]
    pub(crate) fn not_writable(&self) -> Option<NotWritable> {
        if !self.storage.region.is_writable() {
            Some(self.storage.why_not_writable())
        } else if self.write_state.is_published() {
            Some(NotWritable::Published)
        } else {
            self.is_parent_memory().then_some(NotWritable::Forked)
        }
    }

    #[inline]
    pub(crate) fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }

    /// Marks a buffer, which has no other handle, as taken back by its pool.
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
        // Each of two handles that were dropped at the same time may have left the buffer to the other.
        if let Some(slot_ref) =
            self.slot_ref.take().filter(|_| !self.recycled.load(Ordering::Relaxed))
        {
            slot_ref.release(self.must_retire());
        }
    }
}
