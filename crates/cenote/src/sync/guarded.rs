//! A value behind a lock of any kind, and the guard that gives access to it.
//!
//! # Contract
//! The value is accessed only through a [`Guard`]. There is at most one at a time: it exists from [`RawLock::take`] to
//! [`RawLock::release`], and stays in the thread that took the lock.
#![allow(unsafe_code, reason = "gives out the value that a lock protects")]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A lock without a value.
///
/// # Safety
/// While one thread holds the lock, no other `take` returns. A thread that takes it sees every write made before it was
/// last released.
pub(crate) unsafe trait RawLock {
    /// How the lock was taken, which `release` needs.
    type Taken: Copy;

    fn take(&self) -> Self::Taken;

    /// Releases the lock. Called once, by the thread that took it.
    fn release(&self, taken: Self::Taken);
}

/// A value behind a lock.
pub(crate) struct Guarded<L, T> {
    lock: L,
    value: UnsafeCell<T>,
}

// SAFETY: one guard at a time gives access to the value, so to share the lock is to send the value.
unsafe impl<L: Sync, T: Send> Sync for Guarded<L, T> {}

impl<L, T> Guarded<L, T> {
    pub(crate) const fn new_behind(lock: L, value: T) -> Guarded<L, T> {
        Guarded { lock, value: UnsafeCell::new(value) }
    }
}

impl<L: RawLock, T> Guarded<L, T> {
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, L, T> {
        Guard { taken: self.lock.take(), guarded: self, not_send: PhantomData }
    }
}

impl<L: fmt::Debug, T> fmt::Debug for Guarded<L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("lock", &self.lock).finish_non_exhaustive()
    }
}

/// Access to the value. Dropping it releases the lock.
pub(crate) struct Guard<'a, L: RawLock, T> {
    guarded: &'a Guarded<L, T>,
    taken: L::Taken,
    /// The thread that took the lock releases it.
    not_send: PhantomData<*const ()>,
}

impl<L: RawLock, T> Deref for Guard<'_, L, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so no other guard exists.
        unsafe { &*self.guarded.value.get() }
    }
}

impl<L: RawLock, T> DerefMut for Guard<'_, L, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes this the only access through this guard.
        unsafe { &mut *self.guarded.value.get() }
    }
}

impl<L: RawLock, T> Drop for Guard<'_, L, T> {
    #[inline]
    fn drop(&mut self) {
        self.guarded.lock.release(self.taken);
    }
}
