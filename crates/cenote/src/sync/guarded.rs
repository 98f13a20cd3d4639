//! A value behind a lock, of whichever kind, and the guard by which it is reached.
//!
//! # Contract
//! The value is reached through the one [`Guard`] there is, which exists from [`Hold::take`] to [`Hold::leave`], and stays
//! with the thread that took it.
#![allow(unsafe_code, reason = "gives out the value that a lock protects")]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A bare lock.
///
/// # Safety
/// Nobody's `take` returns from when another's has returned to when that one has left, and whoever takes it sees all
/// that was done before it was left.
pub(crate) unsafe trait Hold {
    /// How it was taken, which whoever leaves must say.
    type Way: Copy;

    fn take(&self) -> Self::Way;

    /// By the thread that took it, once.
    fn leave(&self, way: Self::Way);
}

/// A value behind a lock.
pub(crate) struct Guarded<H, T> {
    by: H,
    value: UnsafeCell<T>,
}

// SAFETY: one guard at a time reaches the value, so sharing the lock is sending the value.
unsafe impl<H: Sync, T: Send> Sync for Guarded<H, T> {}

impl<H, T> Guarded<H, T> {
    pub(crate) const fn over(by: H, value: T) -> Guarded<H, T> {
        Guarded { by, value: UnsafeCell::new(value) }
    }
}

impl<H: Hold, T> Guarded<H, T> {
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, H, T> {
        Guard { way: self.by.take(), lock: self, stays: PhantomData }
    }
}

impl<H: fmt::Debug, T> fmt::Debug for Guarded<H, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("by", &self.by).finish_non_exhaustive()
    }
}

/// The right to the value; ends with the guard.
pub(crate) struct Guard<'a, H: Hold, T> {
    lock: &'a Guarded<H, T>,
    way: H::Way,
    /// With the thread that took the lock.
    stays: PhantomData<*const ()>,
}

impl<H: Hold, T> Deref for Guard<'_, H, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is taken for this guard, so nobody else reaches the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<H: Hold, T> DerefMut for Guard<'_, H, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` is the only way to this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<H: Hold, T> Drop for Guard<'_, H, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.by.leave(self.way);
    }
}
