//! The memory pool that all code of this process shares, and acquiring buffers.

use std::sync::atomic::{AtomicBool, Ordering};

use cenote::DType;
use pyo3::prelude::*;

use crate::runtime::error::Result;

/// The default size of the largest buffer that a pool retains.
pub(super) const MAX_BUFFER_SIZE: usize = 1 << 30;

/// The pool that all code of this process shares, including Rust code.
pub(super) fn global_pool() -> Result<&'static cenote::MemoryPool> {
    static IS_SET_UP: AtomicBool = AtomicBool::new(false);
    let pool = cenote::MemoryPool::global()?;
    if !IS_SET_UP.swap(true, Ordering::Relaxed) {
        make_room_for(pool, MAX_BUFFER_SIZE);
    }
    Ok(pool)
}

/// Lets a pool retain a buffer of the largest size, unless the environment sets how many bytes it retains.
pub(super) fn make_room_for(pool: &cenote::MemoryPool, max_buffer_size: usize) {
    if std::env::var_os("CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES").is_none() {
        pool.set_max_retained_bytes(pool.max_retained_bytes().max(max_buffer_size));
    }
}

/// Acquires a buffer. Releases the GIL for pinned memory, because the kernel touches all of it.
pub(super) fn acquire(
    py: Python<'_>,
    pool: &cenote::MemoryPool,
    shape: &[usize],
    dtype: DType,
    pinned: bool,
) -> cenote::Result<cenote::UnifiedBuffer> {
    match pinned {
        true => py.detach(|| pool.acquire_pinned(shape, dtype)),
        false => pool.acquire(shape, dtype),
    }
}
