//! `cenote.MemoryPool`.

use cenote::DType;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::args::dtype::DTypeArg;
use crate::args::integer::{optional_max_retained_bytes, size};
use crate::args::shape::ShapeArg;
use crate::host_pool::shared_pool::{MAX_BUFFER_SIZE, acquire, global_pool, make_room_for};
use crate::host_pool::unified_buffer::UnifiedBuffer;
use crate::runtime::error::Result;

/// A pool of buffers of this process, which it reuses after release.
///
/// >>> pool = cenote.MemoryPool(max_pool_size=10)
/// >>> buffer = pool.acquire((480, 640), "float32")
/// >>> buffer.host[:] = 0.5
/// >>> pool.release(buffer)
/// >>> again = pool.acquire((640, 480, 2), "uint16")   # as many bytes
/// >>> pool.stats()["cache_hits"]
/// 1
///
/// The pool retains released buffers: at most `max_pool_size` of them, none larger than `max_buffer_size`
/// bytes, and at most `max_retained_bytes` in all. The default of the latter is the environment variable
/// `CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES`, or else `max_buffer_size`, but at least 100 MiB. The pool frees
/// buffers that were not used for ten seconds. A buffer is also released when its last reference is gone.
///
/// New buffers are filled with zeros; reused ones show their old bytes. All threads can use the pool.
#[pyclass(frozen, weakref, module = "cenote")]
#[derive(Debug)]
pub(crate) struct MemoryPool(cenote::MemoryPool);

#[pymethods]
impl MemoryPool {
    #[new]
    #[pyo3(signature = (max_pool_size=100, max_buffer_size=MAX_BUFFER_SIZE, *, max_retained_bytes=None))]
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

    /// A buffer: a retained one of the same size, or a new one. `pinned=True` requests memory that is never
    /// swapped out; `buffer.pinned` says whether the kernel allowed that.
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

    /// Releases a buffer. From now on each use of it fails, also a second release.
    ///
    /// Its arrays stay valid: the pool reuses the memory, and counts it as released, when the last array is
    /// gone.
    fn release(&self, buffer: &Bound<'_, UnifiedBuffer>) -> Result<()> {
        let release = |buffer: &mut cenote::UnifiedBuffer| self.0.release(buffer);
        Ok(buffer.get().0.with(buffer.py(), release)??)
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

    /// Frees all retained buffers.
    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.0.clear());
    }

    /// The counters of the pool, as a dict of numbers:
    ///
    /// `pool_size`, `total_bytes`             the retained buffers, and their bytes
    /// `in_use`, `in_use_bytes`               the acquired buffers, and their bytes
    /// `peak_bytes`                           the most bytes of both together
    /// `total_acquired`, `total_released`     how many buffers were acquired and released
    /// `cache_hits`, `cache_misses`           how many of them were reused, and how many were new
    /// `evictions`, `rejects`, `decays`       how many were freed: to make room, for a limit, after ten seconds
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

    /// The number of retained buffers.
    #[getter]
    fn pool_size(&self) -> usize {
        self.0.pool_size()
    }

    /// The bytes of the retained buffers.
    #[getter]
    fn total_bytes(&self) -> usize {
        self.0.total_bytes()
    }

    /// How many bytes the pool retains at most. Lowering it frees buffers at once.
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
        let (retained, bytes, used) = (stats.pool_size, stats.retained_bytes, stats.live);
        format!("<cenote.MemoryPool: {used} buffers in use, {retained} ({bytes} bytes) retained>")
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
