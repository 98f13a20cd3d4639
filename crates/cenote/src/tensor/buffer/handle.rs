//! Counted references to buffers.
//!
//! # Contract
//! There are no weak references to a [`Buffer`], and every strong one is a [`Handle`], or that of its pool
//! while no handle is left. So whoever has a handle to himself and finds a count of one has the buffer to
//! himself: nobody is left to make it two.
#![allow(
    unsafe_code,
    reason = "takes a count out of a handle, and skips what weak references would need"
)]

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::NotWritable;
use crate::memory::selection::Selection;
use crate::memory::storage::Storage;
use crate::sync::{Ordering, fence};
use crate::tensor::buffer::Buffer;
#[cfg(target_os = "linux")]
use crate::tensor::buffer::buffer::BufferSlot;

/// A counted reference to a buffer.
///
/// The last one of a pooled buffer gives it back to its pool whole, so that the next allocation
/// need not make a new one.
#[derive(Debug, Clone)]
pub struct Handle(
    /// Taken out only when the handle ends.
    ManuallyDrop<Arc<Buffer>>,
);

impl Handle {
    /// A buffer of its own.
    pub(crate) fn new(storage: Storage, selection: Selection) -> Handle {
        Handle(ManuallyDrop::new(Arc::new(Buffer::new(storage, selection))))
    }

    /// A buffer that goes back to a pool when the last handle is gone.
    #[cfg(target_os = "linux")]
    pub(crate) fn pooled(storage: Storage, selection: Selection, slot_ref: BufferSlot) -> Handle {
        Handle::of(Arc::new(Buffer::pooled(storage, selection, slot_ref)))
    }

    /// Wraps a buffer that came back from its pool.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn of(buffer: Arc<Buffer>) -> Handle {
        Handle(ManuallyDrop::new(buffer))
    }

    /// The buffer itself, to be retired, if this was the last handle of a published one whose slot is `ours`.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn last_of(self, ours: impl FnOnce(&BufferSlot) -> bool) -> Option<Arc<Buffer>> {
        let ours = self.slot_ref().is_some_and(ours);
        if !ours || Arc::strong_count(&self.0) > 1 || !self.is_published() {
            return None;
        }
        let mut ended = ManuallyDrop::new(self);
        // SAFETY: nobody looks at it again: it was ours, and its drop does not run.
        let buffer = unsafe { ManuallyDrop::take(&mut ended.0) };
        Some(Buffer::into_recycled(buffer))
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn same_buffer(&self, other: &Handle) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The storage for writing, if nobody else could be looking at its bytes.
    #[inline]
    pub(crate) fn storage_mut(&mut self) -> Result<&mut Storage, NotWritable> {
        // First the count: what the sole holder finds afterwards is final. Another could publish between a
        // look at that and the end of its handle.
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

    /// Why [`Handle::storage_mut`] would refuse now, as far as can be told without `&mut`.
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
        // SAFETY: nobody looks at it again.
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
