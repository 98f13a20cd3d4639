//! `cenote.UnifiedBuffer`.
//!
//! Its arrays keep the memory: that of the host side is a loan, which the buffer counts as written
//! until it is gone, and that of the device side a view, which never changes. So a buffer can be
//! released at any time: its memory is used again when the last array is gone.
//!
//! The lock is held for one call of the core at a time, and never while the interpreter is asked for.
//! Where the call copies a lot, others run meanwhile.
#![allow(unsafe_code, reason = "arrays are made of pointers")]

use std::process;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use cenote::host_pool::{DeviceView, HostLoan, HostView, SyncState};
use cenote::{DType, Error, Layout, TensorMemory, TensorOptions};
use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyEllipsis, PyTuple};

use crate::args::dtype::{self, DTypeArg};
use crate::args::shape::{ShapeArg, tuple};
use crate::interop::export::Access;
use crate::interop::numpy_array::{self, Place, array, over};
use crate::runtime::error::{Result, raise};
use crate::runtime::gil;
use crate::runtime::py_call;

/// An array with two sides, one on the host and one on a device, copied when the side that is behind
/// is used.
///
/// >>> buffer = cenote.UnifiedBuffer((2, 3), "float32")
/// >>> buffer.host[:] = 1.5
/// >>> buffer.device.sum()                             # uploads
/// np.float32(9.0)
/// >>> buffer.state
/// 'in_step'
/// >>> buffer
/// <cenote.UnifiedBuffer (2, 3) float32, in_step>
///
/// It comes from the pool of `cenote.get_memory_pool()`; `MemoryPool.acquire` gives one of another
/// pool. It goes back when it is released, at the end of a `with` statement, or when nobody has it any
/// more. It holds anything until it is written; `pinned=True` asks for memory that is never swapped
/// out.
///
/// Arrays of it can be used for as long as you like. What they show stays theirs: the memory is used
/// again only when the buffer was released *and* its arrays, and views of those, are gone.
#[pyclass(frozen, weakref, module = "cenote")]
#[derive(Debug)]
pub(crate) struct UnifiedBuffer {
    buffer: Mutex<cenote::UnifiedBuffer>,
    /// Copying all of it takes long.
    is_large: bool,
    /// The process that has last locked it without the interpreter. One that was forked meanwhile has
    /// nobody who would unlock it.
    wanted_by: AtomicU32,
}

impl From<cenote::UnifiedBuffer> for UnifiedBuffer {
    fn from(buffer: cenote::UnifiedBuffer) -> Self {
        let is_large = gil::is_large(buffer.nbytes());
        UnifiedBuffer { buffer: Mutex::new(buffer), is_large, wanted_by: AtomicU32::new(0) }
    }
}

impl UnifiedBuffer {
    /// Does something that is quick.
    pub(crate) fn with<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut cenote::UnifiedBuffer) -> T + Send,
    ) -> Result<T> {
        match self.try_lock()? {
            Some(mut buffer) => Ok(f(&mut buffer)),
            None => Ok(self.detached(py, f)),
        }
    }

    /// Does something that copies all of it, perhaps.
    fn apart<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut cenote::UnifiedBuffer) -> cenote::Result<T> + Send,
    ) -> Result<T> {
        if !self.is_large {
            return Ok(self.with(py, f)??);
        }
        // Only to see that somebody will unlock it.
        drop(self.try_lock()?);
        Ok(self.detached(py, f)?)
    }

    /// Does something with the host side, which is copied first if it is behind.
    fn on_host<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut cenote::UnifiedBuffer) -> cenote::Result<T> + Send,
    ) -> Result<T> {
        match self.with(py, |buffer| is_host_behind(buffer.state()))? {
            true => self.apart(py, f),
            false => Ok(self.with(py, f)??),
        }
    }

    /// `None` if another thread has it.
    fn try_lock(&self) -> Result<Option<MutexGuard<'_, cenote::UnifiedBuffer>>> {
        match self.buffer.try_lock() {
            Ok(buffer) => Ok(Some(buffer)),
            // The core leaves it whole, whatever happens.
            Err(TryLockError::Poisoned(poisoned)) => Ok(Some(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) if self.wanted_by.load(Relaxed) == process::id() => {
                Ok(None)
            }
            Err(TryLockError::WouldBlock) => {
                let message = "the buffer was in use when this process was forked";
                Err(raise("Forked", message.to_owned(), None))
            }
        }
    }

    /// Takes and gives back the lock while others have the interpreter: a thread that asks for that at
    /// its end never gets it, and would keep the lock for ever.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut cenote::UnifiedBuffer) -> T + Send,
    ) -> T {
        self.wanted_by.store(process::id(), Relaxed);
        py.detach(|| f(&mut self.buffer.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn layout(&self, py: Python<'_>) -> Result<Layout> {
        self.with(py, |buffer| buffer.layout().clone())
    }

    fn element(&self, py: Python<'_>) -> Result<DType> {
        self.with(py, |buffer| buffer.dtype())
    }

    /// The host side, to be read during a call: that is no write, unless an array is alive anyway.
    fn host_to_read<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        // Whether it is lent is not for the interpreter to tell of.
        let view = self.on_host(py, |buffer| match buffer.view() {
            Err(Error::Lent) => Ok(None),
            view => view.map(Some),
        })?;
        match view {
            Some(view) => self.array(py, Side::Host(view)),
            None => self.host(py),
        }
    }

    fn array<'py>(&self, py: Python<'py>, side: Side) -> Result<Bound<'py, PyUntypedArray>> {
        let (layout, descr) = (self.layout(py)?, dtype::descr(py, self.element(py)?)?);
        let (address, len, writable) = side.place();
        if len != layout.nbytes() {
            return Err(Error::TransferLen { device: len, host: layout.nbytes() }.into());
        }
        let place = Place { address, shape: layout.shape(), strides: layout.strides(), writable };
        let base = Bound::new(py, HeldSide(side))?.into_any();
        // SAFETY: there are as many bytes as the layout needs, which starts with the first and has no
        // gaps, for as long as the side is kept. A loan lets them be written.
        unsafe { over(descr, place, base) }
    }
}

#[pymethods]
impl UnifiedBuffer {
    #[new]
    #[pyo3(signature = (shape, dtype=DTypeArg(DType::F32), *, pinned=false))]
    fn new(
        py: Python<'_>,
        shape: ShapeArg,
        dtype: DTypeArg,
        pinned: bool,
    ) -> Result<UnifiedBuffer> {
        let pool = global_pool()?;
        Ok(UnifiedBuffer::from(acquire(py, pool, &shape, dtype.0, pinned)?))
    }

    /// The host side as an array, downloaded first if the device side is newer.
    ///
    /// Writing it is noticed: as long as the array is alive, or a view of it, the host side counts as
    /// the newer one, and whatever uses the device side uploads it first.
    ///
    /// >>> buffer = cenote.UnifiedBuffer(3, "int32")
    /// >>> array = buffer.host
    /// >>> array[:] = 1
    /// >>> buffer.device
    /// array([1, 1, 1], dtype=int32)
    /// >>> array[0] = 7
    /// >>> buffer.state, buffer.device
    /// ('host_dirty', array([7, 1, 1], dtype=int32))
    #[getter]
    fn host<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        let loan = self.on_host(py, cenote::UnifiedBuffer::lend)?;
        self.array(py, Side::Lent(loan))
    }

    /// The device side as an array, uploaded first if the host side is newer. It is read-only and does
    /// not change: what is uploaded while it is alive goes to other memory.
    ///
    /// `buffer.device = x` writes all elements of the device side, which then is the newer one. An
    /// error while an array of `host` is alive.
    ///
    /// >>> buffer = cenote.UnifiedBuffer(3, "int32")
    /// >>> buffer.device = [1, 2, 3]
    /// >>> buffer.state
    /// 'device_only'
    /// >>> buffer.host                                 # downloads
    /// array([1, 2, 3], dtype=int32)
    ///
    /// Without a device this side is host memory, too, and is copied as often as with one.
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        let view = self.apart(py, cenote::UnifiedBuffer::device_view)?;
        let far = || PyBufferError::new_err("the host cannot reach the memory of this device");
        self.array(py, Side::Device(view.ok_or_else(far)?))
    }

    #[setter]
    fn set_device(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<()> {
        // Broadcast and cast by numpy, in memory of its own.
        let options = TensorOptions::new().memory(TensorMemory::Mem);
        let staged = options.create(self.layout(py)?.shape(), self.element(py)?)?;
        assign(array(py, &staged, Access::Write)?.as_any(), value)?;
        self.apart(py, |buffer| buffer.device_mut()?.upload(staged.map()?.as_bytes()?))
    }

    /// Which side holds the data: `"uninitialized"` (none), `"host_only"`, `"device_only"`, `"in_step"`
    /// (both), or which is newer: `"host_dirty"`, `"device_dirty"`.
    #[getter]
    fn state(&self, py: Python<'_>) -> Result<&'static str> {
        Ok(name(self.with(py, |buffer| buffer.state())?))
    }

    /// Sets all elements of the host side: to those of an array, or of whatever numpy makes one of. As
    /// with numpy it is broadcast and cast.
    ///
    /// >>> buffer = cenote.UnifiedBuffer((2, 2), "uint8")
    /// >>> buffer.copy_from([[1, 2], [3, 4]])
    /// >>> buffer.host.tolist()
    /// [[1, 2], [3, 4]]
    fn copy_from(&self, py: Python<'_>, source: &Bound<'_, PyAny>) -> Result<()> {
        let host = self.host(py)?;
        match source.cast::<UnifiedBuffer>() {
            Ok(source) => assign(&host, source.get().host_to_read(py)?.as_any()),
            Err(_) => assign(&host, source),
        }
    }

    /// Sets all elements of an array, a tensor or another buffer to those of this one.
    ///
    /// >>> buffer = cenote.UnifiedBuffer(3, "uint8")
    /// >>> buffer.fill(9)
    /// >>> array = numpy.zeros(3)
    /// >>> buffer.copy_to(array)
    /// >>> array
    /// array([9., 9., 9.])
    fn copy_to(&self, py: Python<'_>, target: &Bound<'_, PyAny>) -> Result<()> {
        match target.cast::<UnifiedBuffer>() {
            Ok(target) => {
                let host = target.get().host(py)?;
                assign(&host, self.host_to_read(py)?.as_any())
            }
            Err(_) => assign(target, self.host_to_read(py)?.as_any()),
        }
    }

    /// Sets all elements of the host side to a value.
    fn fill(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<()> {
        py_call::method(self.host(py)?.as_any(), "fill", (value,))?;
        Ok(())
    }

    /// Sets all elements of the host side to zero.
    fn zeros(&self, py: Python<'_>) -> Result<()> {
        py_call::method(self.host(py)?.as_any(), "fill", (0,))?;
        Ok(())
    }

    /// Brings the side that is behind up to date.
    ///
    /// >>> buffer = cenote.UnifiedBuffer(3)
    /// >>> buffer.zeros()
    /// >>> buffer.synchronize()
    /// >>> buffer.state
    /// 'in_step'
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        self.apart(py, cenote::UnifiedBuffer::sync)
    }

    /// Gives it back to its pool, as `MemoryPool.release` does. From now on every use of it is an error,
    /// but arrays of it stay as they are.
    fn release(&self, py: Python<'_>) -> Result<()> {
        Ok(self.with(py, cenote::UnifiedBuffer::release)??)
    }

    /// Whether it was released.
    #[getter]
    fn released(&self, py: Python<'_>) -> Result<bool> {
        self.with(py, |buffer| buffer.is_released())
    }

    /// The length of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(py, self.layout(py)?.shape())?)
    }

    /// What its elements are, as a dtype of numpy. bfloat16 needs the package `ml_dtypes`.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyArrayDescr>> {
        dtype::descr(py, self.element(py)?).cloned()
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self, py: Python<'_>) -> Result<usize> {
        Ok(self.layout(py)?.ndim())
    }

    /// The number of elements.
    #[getter]
    fn size(&self, py: Python<'_>) -> Result<usize> {
        Ok(self.layout(py)?.len())
    }

    /// The number of bytes in its elements.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> Result<usize> {
        self.with(py, |buffer| buffer.nbytes())
    }

    /// Whether the host side is locked in memory: it was asked for, and the system allowed it.
    #[getter]
    fn pinned(&self, py: Python<'_>) -> Result<bool> {
        self.with(py, |buffer| buffer.is_pinned())
    }

    /// Whether the device side is on a device, and not on the host too.
    #[getter]
    fn is_device(&self, py: Python<'_>) -> Result<bool> {
        self.with(py, |buffer| buffer.is_device())
    }

    /// What `numpy.asarray` asks for: the array of `host`.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        numpy_array::converted(self.host(py)?, dtype, copy)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _type: Py<PyAny>,
        _value: Py<PyAny>,
        _traceback: Py<PyAny>,
    ) -> Result<()> {
        match self.with(py, cenote::UnifiedBuffer::release)? {
            Err(Error::Released) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> Result<String> {
        self.with(py, |buffer| {
            let state = if buffer.is_released() { "released" } else { name(buffer.state()) };
            let (shape, dtype) = (tuple(buffer.shape()), buffer.dtype().numpy_name());
            format!("<cenote.UnifiedBuffer {shape} {dtype}, {state}>")
        })
    }
}

/// The base of an array: what is behind its memory.
///
/// It has no buffer of its own, so numpy cannot be talked into making a read-only array writable.
#[pyclass(frozen, module = "cenote._cenote")]
struct HeldSide(#[allow(dead_code, reason = "kept, not looked at")] Side);

/// A share of one side of a buffer.
#[derive(Debug)]
enum Side {
    /// The host side, to be written.
    Lent(HostLoan),
    /// The host side, to be read.
    Host(HostView),
    /// The device side, to be read.
    Device(DeviceView),
}

impl Side {
    /// The first byte, how many there are, and whether they may be written.
    fn place(&self) -> (*mut u8, usize, bool) {
        let read = |bytes: &[u8]| (bytes.as_ptr().cast_mut(), bytes.len(), false);
        match self {
            Side::Lent(loan) => (loan.as_ptr(), loan.len(), true),
            Side::Host(view) => read(view),
            Side::Device(view) => read(view),
        }
    }
}

/// The pool that all code of this process shares, the core's included.
pub(crate) fn global_pool() -> Result<&'static cenote::MemoryPool> {
    static IS_SET_UP: AtomicBool = AtomicBool::new(false);
    let pool = cenote::MemoryPool::global()?;
    if !IS_SET_UP.swap(true, Relaxed) {
        make_room_for(pool, MAX_BUFFER_SIZE);
    }
    Ok(pool)
}

/// The largest buffer that waits to be used again, unless said otherwise.
pub(crate) const MAX_BUFFER_SIZE: usize = 1 << 30;

/// Lets a pool retain the largest buffer that it may, unless the environment says how many bytes it retains.
pub(crate) fn make_room_for(pool: &cenote::MemoryPool, max_buffer_size: usize) {
    if std::env::var_os("CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES").is_none() {
        pool.set_max_retained_bytes(pool.max_retained_bytes().max(max_buffer_size));
    }
}

/// A buffer of the pool.
pub(crate) fn acquire(
    py: Python<'_>,
    pool: &cenote::MemoryPool,
    shape: &[usize],
    dtype: DType,
    pinned: bool,
) -> cenote::Result<cenote::UnifiedBuffer> {
    match pinned {
        // All of it is touched.
        true => py.detach(|| pool.acquire_pinned(shape, dtype)),
        false => pool.acquire(shape, dtype),
    }
}

/// `target[...] = value`
fn assign(target: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result<()> {
    Ok(py_call::set_item(target, PyEllipsis::get(target.py()).as_any(), value)?)
}

fn is_host_behind(state: SyncState) -> bool {
    matches!(state, SyncState::DeviceOnly | SyncState::DeviceDirty)
}

fn name(state: SyncState) -> &'static str {
    match state {
        SyncState::Uninitialized => "uninitialized",
        SyncState::HostOnly => "host_only",
        SyncState::DeviceOnly => "device_only",
        SyncState::InStep => "in_step",
        SyncState::HostDirty => "host_dirty",
        SyncState::DeviceDirty => "device_dirty",
        _ => "unknown",
    }
}
