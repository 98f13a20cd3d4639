//! The slot of a pool that a buffer occupies, and the way back to that pool.
//!
//! Pools are built on buffers, so a buffer does not name the types of a pool. It carries a pointer to
//! its pool and a table of the two functions that the pool supplies (`ipc/pool/slot_home.rs`). `B` is
//! the buffer.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::memory::slot::Slot;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// How a pool takes back its slots.
pub(crate) struct SlotHome<B: 'static> {
    /// Takes back the slot and the buffer itself. The buffer has no handle any more.
    pub(crate) recycle: fn(Arc<B>),
    /// Takes back the slot alone: its buffer is being dropped. The flag says whether another process
    /// or a device may still use the bytes.
    pub(crate) release: fn(&SlotRef<B>, bool),
}

/// A pool, as its buffers hold it.
pub(crate) type AnyPool = Arc<dyn Any + Send + Sync>;

/// The slot that a buffer occupies.
pub(crate) struct SlotRef<B: 'static> {
    /// The slot. Its range is the buffer's region.
    pub(crate) slot: Slot,
    /// The serial under which a reader leased the slot. Unused in a slot that this process allocated.
    lease_serial: AtomicU64,
    /// The requested length of a slot that this process allocated.
    len: AtomicUsize,
    home: &'static SlotHome<B>,
    pool: AnyPool,
}

impl<B> SlotRef<B> {
    /// Only `ipc/pool/slot_home.rs` calls this: its casts rely on the table and the pool belonging together.
    pub(crate) fn new(
        home: &'static SlotHome<B>,
        pool: AnyPool,
        slot: Slot,
        lease_serial: u64,
        len: usize,
    ) -> SlotRef<B> {
        let (lease_serial, len) = (AtomicU64::new(lease_serial), AtomicUsize::new(len));
        SlotRef { slot, lease_serial, len, home, pool }
    }

    /// Whether this table was given to [`SlotRef::new`].
    #[inline(always)]
    pub(crate) fn is_of(&self, home: &'static SlotHome<B>) -> bool {
        std::ptr::eq(self.home, home)
    }

    #[inline(always)]
    pub(crate) fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// The requested length.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_len(&self, len: usize) {
        self.len.store(len, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn lease_serial(&self) -> u64 {
        self.lease_serial.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_lease_serial(&self, serial: u64) {
        self.lease_serial.store(serial, Ordering::Relaxed);
    }

    /// Returns the slot to its pool, without the buffer.
    pub(crate) fn release(&self, published: bool) {
        (self.home.release)(self, published);
    }

    /// The function that takes back a buffer over this slot.
    #[inline(always)]
    pub(crate) fn recycle(&self) -> fn(Arc<B>) {
        self.home.recycle
    }
}

impl<B> fmt::Debug for SlotRef<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotRef").field("slot", &self.slot).finish_non_exhaustive()
    }
}
