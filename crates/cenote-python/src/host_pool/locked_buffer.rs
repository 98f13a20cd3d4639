//! The lock of a `UnifiedBuffer`.
//!
//! A thread holds the lock for one call of the core, and never waits for the GIL meanwhile. Calls that copy
//! much release the GIL first.

use std::process;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use cenote::host_pool::SyncState;
use pyo3::prelude::*;

use crate::runtime::error::{Result, raise};
use crate::runtime::gil;

/// A buffer of the core behind a lock.
#[derive(Debug)]
pub(super) struct LockedBuffer {
    buffer: Mutex<cenote::UnifiedBuffer>,
    /// Whether copying the buffer takes long.
    is_large: bool,
    /// The process of the last thread that locked the buffer without the GIL. If a fork happened meanwhile,
    /// the child finds the buffer locked by a thread that it does not have.
    locked_by: AtomicU32,
}

impl From<cenote::UnifiedBuffer> for LockedBuffer {
    fn from(buffer: cenote::UnifiedBuffer) -> Self {
        let is_large = gil::is_large(buffer.nbytes());
        LockedBuffer { buffer: Mutex::new(buffer), is_large, locked_by: AtomicU32::new(0) }
    }
}

impl LockedBuffer {
    /// Calls `f`, which is quick. Fails in a forked child if the buffer was locked at the fork.
    pub(super) fn with<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut cenote::UnifiedBuffer) -> T + Send,
    ) -> Result<T> {
        match self.try_lock()? {
            Some(mut buffer) => Ok(f(&mut buffer)),
            None => Ok(self.detached(py, f)),
        }
    }

    /// Calls `f`, which may copy the whole buffer. Releases the GIL meanwhile if the buffer is large.
    pub(super) fn with_copy<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut cenote::UnifiedBuffer) -> cenote::Result<T> + Send,
    ) -> Result<T> {
        if !self.is_large {
            return Ok(self.with(py, f)??);
        }
        // Only to fail if the lock will never be released.
        drop(self.try_lock()?);
        Ok(self.detached(py, f)?)
    }

    /// Calls `f`, which uses the host side, and so copies the buffer if the device side is newer.
    pub(super) fn on_host<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut cenote::UnifiedBuffer) -> cenote::Result<T> + Send,
    ) -> Result<T> {
        match self.with(py, |buffer| is_host_behind(buffer.state()))? {
            true => self.with_copy(py, f),
            false => Ok(self.with(py, f)??),
        }
    }

    /// `None` if another thread has the lock. Fails if that thread does not exist in this process.
    fn try_lock(&self) -> Result<Option<MutexGuard<'_, cenote::UnifiedBuffer>>> {
        match self.buffer.try_lock() {
            Ok(buffer) => Ok(Some(buffer)),
            // The core leaves the buffer whole, also if it panics.
            Err(TryLockError::Poisoned(poisoned)) => Ok(Some(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) if self.locked_by.load(Relaxed) == process::id() => {
                Ok(None)
            }
            Err(TryLockError::WouldBlock) => {
                let message = "the buffer was in use when this process was forked";
                Err(raise("Forked", message.to_owned(), None))
            }
        }
    }

    /// Locks the buffer, calls `f` and unlocks it, all without the GIL. When the interpreter exits, it ends
    /// threads that wait for the GIL: such a thread would keep the lock forever.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut cenote::UnifiedBuffer) -> T + Send,
    ) -> T {
        self.locked_by.store(process::id(), Relaxed);
        py.detach(|| f(&mut self.buffer.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn is_host_behind(state: SyncState) -> bool {
    matches!(state, SyncState::DeviceOnly | SyncState::DeviceDirty)
}
