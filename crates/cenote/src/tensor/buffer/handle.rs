//! Counted references to buffers.
//!
//! # Contract
//! There are no weak references to a [`Buffer`]. Every strong one is a [`Handle`], or the one that its pool has
//! while no handle exists. So code that has `&mut` or ownership of a handle, and finds a count of one, has the
//! buffer exclusively: no other reference is left that could be cloned.
#![allow(
    unsafe_code,
    reason = "takes a count out of a handle, and skips what weak references would need"
)]

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::NotWritable;
use crate::memory::choose::selection::Selection;
use crate::memory::storage::Storage;
use crate::sync::{Ordering, fence};
use crate::tensor::buffer::Buffer;
#[cfg(target_os = "linux")]
use crate::tensor::buffer::buffer::BufferSlot;

/// A counted reference to a buffer.
///
/// The last handle of a pooled buffer returns the buffer itself to its pool, so that the next allocation reuses
/// it.
#[derive(Debug, Clone)]
pub struct Handle(
    /// Taken out only when the handle is dropped or consumed.
    ManuallyDrop<Arc<Buffer>>,
);

impl Handle {
    /// A buffer that belongs to no pool.
    pub(crate) fn new(storage: Storage, selection: Selection) -> Handle {
        Handle(ManuallyDrop::new(Arc::new(Buffer::new(storage, selection))))
    }

    /// A buffer that the last handle returns to a pool.
    #[cfg(target_os = "linux")]
    pub(crate) fn pooled(storage: Storage, selection: Selection, slot_ref: BufferSlot) -> Handle {
        Handle::of(Arc::new(Buffer::pooled(storage, selection, slot_ref)))
    }

    /// Wraps a buffer that its pool hands out again.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn of(buffer: Arc<Buffer>) -> Handle {
        Handle(ManuallyDrop::new(buffer))
    }

    /// Returns the buffer for its pool to retire, if this is the last handle of a published buffer, and `ours` is
    /// true for its slot.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn last_of(self, ours: impl FnOnce(&BufferSlot) -> bool) -> Option<Arc<Buffer>> {
        let ours = self.slot_ref().is_some_and(ours);
        if !ours || Arc::strong_count(&self.0) > 1 || !self.is_published() {
            return None;
        }
        let mut ended = ManuallyDrop::new(self);
        // SAFETY: the value is not used again: this function owns the handle, and its drop does not run.
        let buffer = unsafe { ManuallyDrop::take(&mut ended.0) };
        Some(Buffer::into_recycled(buffer))
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn same_buffer(&self, other: &Handle) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the storage for writing. Fails if another handle exists, or the buffer cannot be written.
    #[inline]
    pub(crate) fn storage_mut(&mut self) -> Result<&mut Storage, NotWritable> {
        // Check the count first: what the sole holder reads after that is final. In the other order, another
        // handle could publish the buffer after the check and then be dropped.
        let shared = self.is_shared();
        // Pairs with the Release by which the other handles were dropped.
        fence(Ordering::Acquire);
        if let Some(reason) = self.0.not_writable().or(shared) {
            return Err(reason);
        }
        // SAFETY: the count is one, and the handle is borrowed for as long as the storage is.
        let buffer = unsafe { &mut *Arc::as_ptr(&self.0).cast_mut() };
        Ok(buffer.storage_mut())
    }

    /// Returns why [`Handle::storage_mut`] would fail now, as far as that can be seen without `&mut`.
    #[inline]
    pub(crate) fn not_writable(&self) -> Option<NotWritable> {
        self.0.not_writable().or_else(|| self.is_shared())
    }

    #[inline]
    fn is_shared(&self) -> Option<NotWritable> {
        (Arc::strong_count(&self.0) > 1).then_some(NotWritable::Shared)
    }
}

impl Deref for Handle {
    type Target = Buffer;

    #[inline]
    fn deref(&self) -> &Buffer {
        &self.0
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the value is not used again: the handle is being dropped.
        let buffer = unsafe { ManuallyDrop::take(&mut self.0) };
        #[cfg(target_os = "linux")]
        if Arc::strong_count(&buffer) == 1
            && let Some(recycle) = buffer.slot_ref().map(BufferSlot::recycle)
        {
            return recycle(Buffer::into_recycled(buffer));
        }
        drop(buffer);
    }
}
