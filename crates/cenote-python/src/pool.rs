//! `cenote.TensorPool`.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cenote::{DType, Holder, PoolAccess, PoolName, PoolStats, TensorPoolConfig, Wish};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::args::dtype::DTypeArg;
use crate::args::integer::{is_integer, optional_group, size, unsigned};
use crate::args::seconds::duration;
use crate::args::seconds::optional_seconds;
use crate::args::shape::ShapeArg;
use crate::interop::numpy_array;
use crate::outbox::outbox;
use crate::runtime::error::{Raised, Result, bad_argument, raise};
use crate::runtime::gil;
use crate::runtime::wait;
use crate::tensor::Tensor;

/// A pool's name as an argument: a string or a number.
struct NameArg(PoolName);

impl<'py> FromPyObject<'_, 'py> for NameArg {
    type Error = Raised;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> Result<Self> {
        if is_integer(&given) {
            return Ok(NameArg(unsigned::<u32>("pool_id", &given, u32::MAX.into())?.into()));
        }
        let wrong = |_| PyTypeError::new_err("a pool_id is an integer or a string");
        Ok(NameArg(given.cast::<PyString>().map_err(wrong)?.to_str()?.into()))
    }
}

/// A pool of tensors in shared memory.
///
/// >>> pool = cenote.TensorPool(pool_id=1, size_mb=1024, max_slots=1024)
/// >>> frame = pool.alloc(shape=(1080, 1920, 3), dtype="float32")
/// >>> pool.close()
///
/// The process that makes a pool owns it. Only the owner allocates and writes tensors. Other processes `open`
/// the pool, or get its tensors by descriptor, queue or topic, and read them. The pool reserves memory when
/// it needs it, up to `size_mb` MiB. When a tensor and its arrays are gone in all processes, the pool reuses
/// the memory; a tensor of `alloc` shows the old bytes until you write it.
///
/// `pool_id`         a number or a name
/// `max_slots`       how many tensors can exist at a time
/// `slot_alignment`  their alignment, in bytes
/// `growth_mb`       how much memory is reserved at a time; 0 lets the pool decide
/// `max_leases`      how many tensors another process can hold at a time; 0 means half of `max_slots`
/// `scrub`           overwrite released memory with zeros
/// `group`           the id of a group whose users can attach; None means this user only
/// `prefault`, `mlock`, `huge_pages`
///                   requests to the kernel; `stats()["not_granted"]` lists the refused ones
#[pyclass(frozen, weakref, module = "cenote")]
#[derive(Debug)]
pub(crate) struct TensorPool {
    /// `None` after it was closed.
    pool: Mutex<Option<cenote::TensorPool>>,
    /// Whether reserving memory takes long, because the kernel touches or moves it at once.
    grows_slowly: bool,
}

impl TensorPool {
    fn of(pool: cenote::TensorPool, grows_slowly: bool) -> TensorPool {
        TensorPool { pool: Mutex::new(Some(pool)), grows_slowly }
    }

    fn lock(&self) -> MutexGuard<'_, Option<cenote::TensorPool>> {
        // A panic leaves it whole: its value is only ever replaced.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool. Fails if it was closed.
    pub(crate) fn get(&self) -> Result<cenote::TensorPool> {
        let closed = || raise("Error", "the pool was closed".to_owned(), None);
        let pool = self.lock().clone();
        pool.ok_or_else(closed)
    }

    /// Calls `alloc` with the pool. Releases the GIL meanwhile if reserving memory takes long.
    pub(crate) fn alloc_with<T: Send>(
        &self,
        py: Python<'_>,
        alloc: impl FnOnce(&cenote::TensorPool) -> cenote::Result<T> + Send,
    ) -> Result<T> {
        let pool = self.get()?;
        Ok(gil::detach_if(py, self.grows_slowly, || alloc(&pool))?)
    }
}

#[pymethods]
impl TensorPool {
    #[new]
    #[pyo3(signature = (
        pool_id=NameArg(1.into()), size_mb=1024, max_slots=1024, *, slot_alignment=64, growth_mb=0,
        prefault=false, mlock=false, huge_pages=false, scrub=false, group=None, max_leases=0
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        py: Python<'_>,
        pool_id: NameArg,
        #[pyo3(from_py_with = size::size_mb)] size_mb: usize,
        #[pyo3(from_py_with = size::max_slots)] max_slots: usize,
        #[pyo3(from_py_with = size::slot_alignment)] slot_alignment: usize,
        #[pyo3(from_py_with = size::growth_mb)] growth_mb: usize,
        prefault: bool,
        mlock: bool,
        huge_pages: bool,
        scrub: bool,
        #[pyo3(from_py_with = optional_group)] group: Option<u32>,
        #[pyo3(from_py_with = size::max_leases)] max_leases: usize,
    ) -> Result<TensorPool> {
        let config = TensorPoolConfig {
            pool_size: bytes(size_mb)?,
            max_slots,
            slot_alignment,
            growth: bytes(growth_mb)?,
            prefault,
            mlock,
            huge_pages,
            scrub,
            access: group.map_or(PoolAccess::SameUser, PoolAccess::Group),
            max_leases,
            ..TensorPoolConfig::default()
        };
        let made = py.detach(|| cenote::TensorPool::new(pool_id.0, config));
        Ok(TensorPool::of(made?, prefault || mlock || huge_pages))
    }

    /// Attaches to the pool of another process, to read its tensors.
    #[staticmethod]
    #[pyo3(signature = (pool_id=NameArg(1.into())))]
    fn open(py: Python<'_>, pool_id: NameArg) -> Result<TensorPool> {
        Ok(TensorPool::of(py.detach(|| cenote::TensorPool::open(pool_id.0))?, false))
    }

    /// Allocates a tensor. If the pool is full, it waits for `timeout` seconds before it fails; without a
    /// timeout it fails at once.
    #[pyo3(signature = (shape, dtype=DTypeArg(DType::F32), *, timeout=None))]
    fn alloc(
        &self,
        py: Python<'_>,
        shape: ShapeArg,
        dtype: DTypeArg,
        #[pyo3(from_py_with = optional_seconds)] timeout: Option<f64>,
    ) -> Result<Tensor> {
        let tensor = match timeout {
            None => self.alloc_with(py, |pool| pool.alloc(&shape, dtype.0))?,
            Some(seconds) => alloc_waiting(py, &self.get()?, &shape, dtype.0, duration(seconds)?)?,
        };
        Ok(tensor.into())
    }

    /// Copies a tensor, an array, or an object that numpy converts to an array into this pool. `stats` and
    /// `cenote.copies()` count the copy. Only the owner can call it.
    fn stage(&self, py: Python<'_>, array: &Bound<'_, PyAny>) -> Result<Tensor> {
        let pool = self.get()?;
        let source = match array.cast::<Tensor>() {
            Ok(tensor) => tensor.get().0.clone(),
            Err(_) => numpy_array::adopt(&numpy_array::to_array(array)?)?,
        };
        Ok(py.detach(|| pool.stage(&source))?.into())
    }

    /// The state of the pool, as a dict of numbers.
    ///
    /// >>> with cenote.TensorPool("example", size_mb=64) as pool:
    /// ...     frame = pool.alloc((480, 640))
    /// ...     stats = pool.stats()
    /// >>> stats["slots_in_use"], stats["pool_size"]
    /// (1, 67108864)
    ///
    /// Only the owner can call it.
    fn stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let pool = self.get()?;
        let stats = pool.stats()?;
        let dict = stats_dict(py, &stats)?;
        dict.set_item("in_transit", outbox::count(Some(pool.uid())))?;
        Ok(dict)
    }

    /// The processes that hold tensors of this pool: the owner, and the processes attached to the pool. A list
    /// of dicts with `pid`, `program`, `slots`, `retired_slots` (the owner has released them, and this process
    /// still holds them) and `longest` (how many seconds ago the owner released the first of these). Only the
    /// owner can call it.
    fn holders<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyDict>>> {
        let pool = self.get()?;
        let holders = py.detach(|| pool.holders())?;
        Ok(holders.iter().map(|holder| holder_dict(py, holder)).collect::<PyResult<_>>()?)
    }

    /// Frees each segment that has no tensor, and returns how many bytes it freed. Only the owner can call it.
    fn trim(&self, py: Python<'_>) -> Result<usize> {
        let pool = self.get()?;
        Ok(py.detach(|| pool.trim())?)
    }

    /// The name of the pool.
    #[getter]
    fn name(&self) -> Result<String> {
        Ok(self.get()?.name().to_owned())
    }

    /// The number that descriptors use for the pool.
    #[getter]
    fn uid(&self) -> Result<u64> {
        Ok(self.get()?.uid())
    }

    /// Whether this process owns the pool, so that it can allocate.
    #[getter]
    fn is_owner(&self) -> bool {
        self.lock().as_ref().is_some_and(cenote::TensorPool::is_owner)
    }

    /// Whether the pool can be used: it is not closed, its owner is alive, and it was not inherited by a fork.
    #[getter]
    fn is_alive(&self) -> bool {
        self.lock().as_ref().is_some_and(cenote::TensorPool::is_alive)
    }

    /// Closes the pool: other processes can no longer find it. Its tensors and arrays stay valid. The pool
    /// also closes at the end of a `with` statement, or when its last reference is gone.
    fn close(&self, py: Python<'_>) {
        let pool = self.lock().take();
        py.detach(|| drop(pool));
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, py: Python<'_>, _type: Py<PyAny>, _value: Py<PyAny>, _traceback: Py<PyAny>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        match &*self.lock() {
            None => "<cenote.TensorPool, closed>".to_owned(),
            Some(pool) => describe(pool),
        }
    }
}

/// A pool's counters, as a dict. `TensorPool.stats` adds `in_transit`.
pub(crate) fn stats_dict<'py>(py: Python<'py>, stats: &PoolStats) -> PyResult<Bound<'py, PyDict>> {
    let wishes: Vec<_> = stats.not_granted.iter().map(|&wish| wish_name(wish)).collect();
    let dict = PyDict::new(py);
    dict.set_item("slots_in_use", stats.slots_in_use)?;
    dict.set_item("retired", stats.retired)?;
    dict.set_item("max_slots", stats.max_slots)?;
    dict.set_item("bytes_in_use", stats.bytes_in_use)?;
    dict.set_item("bytes_reserved", stats.bytes_reserved)?;
    dict.set_item("pool_size", stats.pool_size)?;
    dict.set_item("peak_bytes", stats.peak_bytes)?;
    dict.set_item("waste_bytes", stats.waste_bytes)?;
    dict.set_item("segments", stats.segments)?;
    dict.set_item("attachers", stats.attachers)?;
    dict.set_item("socket_watched", stats.socket_watched)?;
    dict.set_item("allocations", stats.allocations)?;
    dict.set_item("failures", stats.failures)?;
    dict.set_item("bytes_copied", stats.bytes_copied)?;
    dict.set_item("not_granted", wishes)?;
    Ok(dict)
}

/// A process that holds tensors, as a dict.
pub(crate) fn holder_dict<'py>(py: Python<'py>, holder: &Holder) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("pid", holder.pid)?;
    dict.set_item("program", &holder.program)?;
    dict.set_item("slots", holder.slots)?;
    dict.set_item("retired_slots", holder.retired_slots)?;
    dict.set_item("longest", holder.longest.as_secs_f64())?;
    Ok(dict)
}

/// Allocates a tensor. If the pool is full, it waits for `timeout`. Runs signal handlers meanwhile.
fn alloc_waiting(
    py: Python<'_>,
    pool: &cenote::TensorPool,
    shape: &[usize],
    dtype: DType,
    timeout: Duration,
) -> Result<cenote::Tensor> {
    let start = Instant::now();
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        let pause_at = Instant::now() + wait::SIGNAL_INTERVAL;
        let go_on = || Instant::now() < pause_at;
        if let Some(tensor) = py.detach(|| pool.alloc_while(shape, dtype, left, go_on))? {
            return Ok(tensor);
        }
        py.check_signals()?;
    }
}

/// The name of the argument for a request to the kernel.
fn wish_name(wish: Wish) -> &'static str {
    match wish {
        Wish::HugePages => "huge_pages",
        Wish::Prefault => "prefault",
        Wish::Lock => "mlock",
        _ => "unknown",
    }
}

fn describe(pool: &cenote::TensorPool) -> String {
    let name = pool.name();
    match pool.stats() {
        Ok(stats) => {
            let (slots, most) = (stats.slots_in_use + stats.retired, stats.max_slots);
            let (used, size) = (stats.bytes_in_use, stats.pool_size);
            format!(
                "<cenote.TensorPool {name:?}: {slots}/{most} slots, {used}/{size} bytes in use>"
            )
        }
        Err(_) if pool.is_alive() => format!("<cenote.TensorPool {name:?}, of another process>"),
        Err(_) => format!("<cenote.TensorPool {name:?}, not usable here>"),
    }
}

/// The number of bytes. Fails if it does not fit.
pub(crate) fn bytes(mebibytes: usize) -> Result<usize> {
    let fits = mebibytes.checked_mul(1 << 20);
    fits.ok_or_else(|| bad_argument(format!("{mebibytes} MiB do not fit the address space")))
}
