//! The identity of a buffer, for caches.

use std::sync::{Arc, OnceLock, Weak};

use crate::sync::{AtomicU64, Ordering, StaticU64};
#[cfg(all(target_os = "linux", feature = "gl"))]
use crate::sys::drop_callbacks::DropCallbacks;

/// Identifies a buffer: a key for caches of things made from it.
///
/// Clones and views of a tensor share it. Every allocation and every import has a new one.
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
    /// 0 until `id` is first called, and while no tensor has the buffer.
    id: AtomicU64,
    /// Created by the first call of `weak`: most buffers are never watched.
    token: OnceLock<Arc<()>>,
    /// Called when the last tensor of the buffer is dropped.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    drop_callbacks: OnceLock<DropCallbacks>,
}

impl BufferIdentity {
    pub(crate) fn new() -> Self {
        BufferIdentity {
            id: AtomicU64::new(0),
            token: OnceLock::new(),
            #[cfg(all(target_os = "linux", feature = "gl"))]
            drop_callbacks: OnceLock::new(),
        }
    }

    /// Calls `end` when the last tensor of the buffer is dropped: see [`DropCallbacks::add`].
    #[cfg(all(target_os = "linux", feature = "gl"))]
    pub(crate) fn on_drop(&self, key: u64, end: impl FnOnce() + Send + 'static) -> bool {
        self.drop_callbacks.get_or_init(DropCallbacks::default).add(key, end)
    }

    /// Makes the identity of a recycled buffer new. Only the pool has the buffer.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn reset(&self) {
        self.id.store(0, Ordering::Relaxed);
    }

    /// Returns whether a weak reference or a callback watches the buffer.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        #[cfg(feature = "gl")]
        if self.drop_callbacks.get().is_some() {
            return true;
        }
        self.token.get().is_some()
    }

    /// Ends the watches: the last tensor of the buffer was dropped, and its pool keeps the buffer.
    #[cfg(target_os = "linux")]
    pub(crate) fn end(&mut self) {
        self.token.take();
        #[cfg(feature = "gl")]
        self.drop_callbacks.take();
    }

    /// A number that no other buffer of this process has or ever had. Numbers increase in the order of the first
    /// calls.
    pub fn id(&self) -> u64 {
        match self.id.load(Ordering::Relaxed) {
            0 => self.assign_id(),
            id => id,
        }
    }

    /// Assigns the number. Relaxed suffices: only uniqueness matters.
    fn assign_id(&self) -> u64 {
        static NEXT: StaticU64 = StaticU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let won = self.id.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed);
        won.map_or_else(|other| other, |_| id)
    }

    /// A reference that ends with the last tensor of the buffer.
    pub fn weak(&self) -> Weak<()> {
        Arc::downgrade(self.token.get_or_init(Arc::default))
    }
}
