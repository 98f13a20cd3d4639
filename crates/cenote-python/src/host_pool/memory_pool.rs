//! `cenote.MemoryPool`.

use cenote::DType;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::args::dtype::DTypeArg;
use crate::args::integer::{optional_max_retained_bytes, size};
use crate::args::shape::ShapeArg;
use crate::host_pool::unified_buffer::{UnifiedBuffer, acquire, global_pool, make_room_for};
use crate::runtime::error::Result;

/// Buffers of this process that are used again.
///
/// >>> pool = cenote.MemoryPool(max_pool_size=10)
/// >>> buffer = pool.acquire((480, 640), "float32")
/// >>> buffer.host[:] = 0.5
/// >>> pool.release(buffer)
/// >>> again = pool.acquire((640, 480, 2), "uint16")   # as many bytes
/// >>> pool.stats()["cache_hits"]
/// 1
///
/// What is released waits to be used again: at most `max_pool_size` buffers, none larger than
/// `max_buffer_size` bytes, and no more than `max_retained_bytes` in all. If that is not given, the
/// environment variable `CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES` says how many, or it is
/// `max_buffer_size`, but at least 100 MiB. What waits for ten seconds or more is freed. A buffer that nobody has any more comes back as if it were
/// released.
///
/// New buffers hold zeros, used ones whatever was in them. Any thread can use the pool.
#[pyclass(frozen, weakref, module = "cenote")]
#[derive(Debug)]
pub(crate) struct MemoryPool(cenote::MemoryPool);

#[pymethods]
impl MemoryPool {
    #[new]
    #[pyo3(signature = (max_pool_size=100, max_buffer_size=1 << 30, *, max_retained_bytes=None))]
    fn new(
        #[pyo3(from_py_with = size::max_pool_size)] max_pool_size: usize,
        #[pyo3(from_py_with = size::max_buffer_size)] max_buffer_size: usize,
        #[pyo3(from_py_with = optional_max_retained_bytes)] max_retained_bytes: Option<usize>,
    ) -> Result<MemoryPool> {
        let pool = cenote::MemoryPool::with_limits(max_pool_size, max_buffer_size)?;
        match max_retained_bytes {
            Some(bytes) => pool.set_max_retained_bytes(bytes),
            None => make_room_for(&pool, max_buffer_size),
        }
        Ok(MemoryPool(pool))
    }

    /// A buffer: one that was released, if one is as large, or a new one. `pinned=True` asks for memory
    /// that is never swapped out; `buffer.pinned` tells whether the system allowed that.
    ///
    /// >>> cenote.get_memory_pool().acquire((2, 3))
    /// <cenote.UnifiedBuffer (2, 3) float32, uninitialized>
    #[pyo3(signature = (shape, dtype=DTypeArg(DType::F32), *, pinned=false))]
    fn acquire(
        &self,
        py: Python<'_>,
        shape: ShapeArg,
        dtype: DTypeArg,
        pinned: bool,
    ) -> Result<UnifiedBuffer> {
        Ok(UnifiedBuffer::from(acquire(py, &self.0, &shape, dtype.0, pinned)?))
    }

    /// Takes a buffer back. From now on every use of it is an error, also releasing it again.
    ///
    /// Arrays of it stay as they are, and show nothing of what others write: the memory is used again,
    /// and counted as released, when the last of them is gone.
    fn release(&self, buffer: &Bound<'_, UnifiedBuffer>) -> Result<()> {
        let release = |buffer: &mut cenote::UnifiedBuffer| self.0.release(buffer);
        Ok(buffer.get().with(buffer.py(), release)??)
    }

    /// A buffer that is released at the end of a `with` statement.
    ///
    /// >>> with cenote.get_memory_pool().pooled((2, 3)) as buffer:
    /// ...     buffer.host[:] = 1
    /// ...     total = float(buffer.device.sum())
    /// >>> total, buffer.released
    /// (6.0, True)
    #[pyo3(signature = (shape, dtype=DTypeArg(DType::F32), *, pinned=false))]
    fn pooled(
        &self,
        py: Python<'_>,
        shape: ShapeArg,
        dtype: DTypeArg,
        pinned: bool,
    ) -> Result<UnifiedBuffer> {
        self.acquire(py, shape, dtype, pinned)
    }

    /// Frees all buffers that wait to be used again.
    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.0.clear());
    }

    /// What the pool has done and what it holds, as a dict of numbers: `pool_size` (buffers that wait to
    /// be used again) and `total_bytes` of them, `total_acquired`, `total_released`, `cache_hits` (a
    /// buffer was used again), `cache_misses` (one was new), `in_use` and `in_use_bytes`, `peak_bytes`
    /// (the most in use and waiting together), and what was freed: `evictions` (to make room), `rejects`
    /// (for a limit), `decays` (not used for a while).
    ///
    /// >>> pool = cenote.MemoryPool()
    /// >>> for _ in range(100):
    /// ...     pool.release(pool.acquire((1000,), numpy.float32))
    /// >>> stats = pool.stats()
    /// >>> f"{stats['cache_hits'] / stats['total_acquired']:.1%}"
    /// '99.0%'
    fn stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let stats = self.0.stats();
        let dict = PyDict::new(py);
        dict.set_item("pool_size", stats.pool_size)?;
        dict.set_item("total_acquired", stats.total_acquired)?;
        dict.set_item("total_released", stats.total_released)?;
        dict.set_item("cache_hits", stats.hits)?;
        dict.set_item("cache_misses", stats.misses)?;
        dict.set_item("total_bytes", stats.retained_bytes)?;
        dict.set_item("in_use", stats.live)?;
        dict.set_item("in_use_bytes", stats.live_bytes)?;
        dict.set_item("peak_bytes", stats.peak_bytes)?;
        dict.set_item("evictions", stats.evictions)?;
        dict.set_item("rejects", stats.rejects)?;
        dict.set_item("decays", stats.decays)?;
        Ok(dict)
    }

    /// The number of buffers that wait to be used again.
    #[getter]
    fn pool_size(&self) -> usize {
        self.0.pool_size()
    }

    /// The bytes of the buffers that wait to be used again.
    #[getter]
    fn total_bytes(&self) -> usize {
        self.0.total_bytes()
    }

    /// The most bytes that may wait to be used again. Lowering it frees at once.
    #[getter]
    fn max_retained_bytes(&self) -> usize {
        self.0.max_retained_bytes()
    }

    #[setter]
    fn set_max_retained_bytes(
        &self,
        #[pyo3(from_py_with = size::max_retained_bytes)] bytes: usize,
    ) {
        self.0.set_max_retained_bytes(bytes);
    }

    fn __repr__(&self) -> String {
        let stats = self.0.stats();
        let (waiting, bytes, used) = (stats.pool_size, stats.retained_bytes, stats.live);
        format!("<cenote.MemoryPool: {used} buffers in use, {waiting} ({bytes} bytes) waiting>")
    }
}

/// The memory pool that all code of this process shares, with the limits of `cenote.MemoryPool()`.
///
/// >>> cenote.get_memory_pool() is cenote.get_memory_pool()
/// True
#[pyfunction]
pub(crate) fn get_memory_pool(py: Python<'_>) -> Result<Py<MemoryPool>> {
    static POOL: PyOnceLock<Py<MemoryPool>> = PyOnceLock::new();
    let made = || -> Result<_> {
        let pool = global_pool()?.clone();
        Ok(Py::new(py, MemoryPool(pool))?)
    };
    Ok(POOL.get_or_try_init(py, made)?.clone_ref(py))
}
